"""A full disk is said in one clear line, costs nothing that was kept, and all goes on when there is room."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Desk, noise

POINTS = 60
NUMBERS_A_POINT = 5_000  # 40 kB: a disk of 2 MB takes some 40 points
SMALL, LARGE = "2m", "64m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "overnight-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"NOT TESTED ON A FULL DISK: this machine lets us mount none ({made.stderr.strip()})")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_room(disk: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,size={LARGE}", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave not one byte free, and return the file that takes all of it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


def expected() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.repeat(np.arange(POINTS, dtype=float)[:, np.newaxis], NUMBERS_A_POINT, axis=1)


def run_of(home: Path, broker: Path, output: str = "out.npy") -> tuple[str, ...]:
    return (
        *("run", "counted:wide", "--data", f"range:{POINTS}", "--batch", "1", "--slots", "1"),
        *("--home", str(home), "--broker", f"embedded:{broker}", "--output", output),
    )


def test_a_job_file_on_a_full_disk_ends_the_run_with_one_line_and_goes_on_when_there_is_room(
    desk: Desk, disk: Path
) -> None:
    desk.home = disk / "home"
    run = run_of(desk.home, desk.folder / "queues")

    full = desk.overnight(*run)
    assert full.status == 1, full
    assert "the disk is full; make room and start the same command again, nothing is lost" in full.output
    assert "Traceback" not in full.output, full
    done = desk.points_done()
    assert 10 < len(done) < POINTS
    fill(disk)
    for words in (run, ("resume", *run[-6:-2], "--slots", "1")):
        again = desk.overnight(*words)
        assert again.status == 1, again
        assert "disk is full" in again.output or "No space left" in again.output
        assert "Traceback" not in again.output, again
    looked = desk.overnight("status", "--home", str(desk.home))
    assert looked.status == 0, looked
    assert f"{len(done) / POINTS:.0%}".replace("%", " %") in looked.output

    homeless = desk.overnight("resume", "--home", str(desk.home))
    assert homeless.status == 3, homeless
    assert (
        "broker.sqlite cannot be opened: database or disk is full; make room on that disk" in homeless.output
    )

    make_room(disk)
    ended = desk.overnight(*run)
    assert ended.status == 0, ended
    assert desk.results().tobytes() == expected().tobytes()
    assert all(desk.calls()[point] == 1 for point in done)


def test_an_export_to_a_full_disk_leaves_the_old_file_and_the_results_in_the_job_file(
    desk: Desk, disk: Path
) -> None:
    (disk / "out.npy").write_bytes(b"what was there before")
    run = run_of(desk.home, desk.home, str(disk / "out.npy"))

    full = desk.overnight(*run)

    assert full.status == 1, full
    assert f"{POINTS} of {POINTS} points done, but not exported" in full.output
    assert "No space left on device; the results are safe in the job file" in full.output
    assert "Traceback" not in full.output, full
    assert (disk / "out.npy").read_bytes() == b"what was there before"
    assert [path.name for path in disk.iterdir()] == ["out.npy"]
    make_room(disk)
    exported = desk.overnight("export", str(disk / "out.npy"))
    assert exported.status == 0, exported
    assert np.load(disk / "out.npy").tobytes() == expected().tobytes()
    assert set(desk.calls().values()) == {1}


def test_a_full_disk_under_the_embedded_broker_is_said_on_the_runs_own_lines_and_goes_on_by_itself(
    desk: Desk, disk: Path
) -> None:
    desk.hold(POINTS // 2)
    program = desk.start(
        *("run", "counted:noisy", "--data", f"range:{POINTS}", "--batch", "1", "--slots", "2"),
        *("--broker", f"embedded:{disk}", "--output", "out.npy"),
    )
    program.wait_until(lambda: len(desk.noted("held")) >= 2)
    filler = fill(disk)

    program.wait_until_it_says("disk of the broker's file is full")
    desk.let_go()
    filler.unlink()
    ended = program.wait()

    assert ended.status == 0, ended
    assert "Traceback" not in ended.output, ended
    assert desk.results().tobytes() == noise(POINTS).tobytes()
    assert set(desk.calls().values()) == {1}
