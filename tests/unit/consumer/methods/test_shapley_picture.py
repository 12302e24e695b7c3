import subprocess
import sys

import numpy as np
import pytest

from overnight_consumer.methods.shapley import picture

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def files(tmp_path, digits):
    """Thirty digits and made-up attributions, the first two of them not done yet."""
    attributions = np.random.default_rng(0).normal(scale=0.1, size=(30, 64))
    attributions[:2] = np.nan
    np.save(tmp_path / "digits.npy", digits[:30])
    np.save(tmp_path / "out.npy", attributions)
    return tmp_path


def run(folder, data="digits.npy", results="out.npy", output="digits.png"):
    return picture.main(
        ["--data", str(folder / data), "--results", str(folder / results), "--output", str(folder / output)]
    )


def test_a_picture_is_drawn_from_two_files(files):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the picture was NOT tested")

    command = [sys.executable, "-m", "overnight_consumer.methods.shapley.picture", "--data", "digits.npy"]
    done = subprocess.run(
        [*command, "--results", "out.npy", "--output", "digits.png"],
        cwd=files,
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "drew digits.png\n", "")
    assert (files / "digits.png").read_bytes().startswith(PNG_SIGNATURE)


def test_fewer_than_a_dozen_finished_points_are_drawn_too(files):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the picture was NOT tested")
    attributions = np.load(files / "out.npy")
    attributions[5:] = np.nan
    np.save(files / "out.npy", attributions)

    assert run(files) == 0
    assert (files / "digits.png").read_bytes().startswith(PNG_SIGNATURE)


def test_the_first_dozen_finished_points_are_chosen():
    attributions = np.zeros((30, 64))
    attributions[[0, 1, 4], 7] = np.nan

    assert picture.choose(attributions).tolist() == [2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]


def test_without_matplotlib_the_error_names_the_extra(files, capsys, monkeypatch):
    for module in ("matplotlib", "matplotlib.figure", "matplotlib.backends.backend_agg"):
        monkeypatch.setitem(sys.modules, module, None)

    assert run(files) == 2
    assert "pip install 'overnight[plot]'" in capsys.readouterr().err


def test_a_missing_file_is_named(files, capsys):
    assert run(files, results="gone.npy") == 2
    assert f"there is no file {files / 'gone.npy'}" in capsys.readouterr().err


def test_a_file_of_another_kind_is_named(files, capsys):
    (files / "notes.npy").write_text("no array")

    assert run(files, data="notes.npy") == 2
    assert "notes.npy cannot be read as .npy" in capsys.readouterr().err


def test_results_of_another_data_set_are_refused_with_both_lengths(files, digits, capsys):
    np.save(files / "digits.npy", digits[:29])

    assert run(files) == 2
    assert "29 digits and 30 results do not belong together" in capsys.readouterr().err


def test_results_of_another_shape_are_refused(files, capsys):
    np.save(files / "out.npy", np.zeros((30, 3)))

    assert run(files) == 2
    assert "are no 8 x 8 pictures" in capsys.readouterr().err


def test_nothing_finished_yet_is_said_so(files, capsys):
    np.save(files / "out.npy", np.full((30, 64), np.nan))

    assert run(files) == 2
    assert "no point has a result yet" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_named(files, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: the picture was NOT tested")

    assert run(files, output="no-such-folder/digits.png") == 2
    assert "cannot write the picture" in capsys.readouterr().err
