"""The README shows nothing that does not work: its code and commands are run as they stand."""

import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest

from support.markdown import blocks, document

README = document("README.md")
PROGRAMS = {"overnight": "overnight_producer", "overnight-consumer": "overnight_consumer"}


def commands():
    """Return every command after a `$` in the console blocks."""
    console = [block.text for block in blocks(README) if block.language == "console"]
    found = [line[2:] for text in console for line in text.splitlines() if line.startswith("$ ")]
    return [line for line in found if not line.startswith("export ")]


def arguments(command):
    program, *rest = shlex.split(command)
    return [sys.executable, "-m", PROGRAMS[program], *rest]


@pytest.fixture
def folder(tmp_path):
    (code,) = [block.text for block in blocks(README) if block.language == "python"]
    (tmp_path / "mylib.py").write_text(code)
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((50, 8)))
    return tmp_path


def check(folder):
    points = np.load(folder / "points.npy")
    np.testing.assert_array_equal(np.load(folder / "results.npy"), np.sort(points, axis=1)[:, -3:])


def test_the_method_of_the_readme_runs_on_a_laptop(folder):
    laptop = commands()[0]
    done = subprocess.run(
        arguments(laptop), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check(folder)


@pytest.mark.rabbitmq
def test_the_same_command_runs_over_rabbitmq_with_the_consumer_of_the_readme(folder, amqp_url, monkeypatch):
    monkeypatch.setenv("OVERNIGHT_BROKER", amqp_url)
    _laptop, consumer, run = commands()
    assert run == _laptop
    serving = subprocess.Popen(arguments(consumer), cwd=folder, start_new_session=True)
    try:
        done = subprocess.run(
            arguments(run), cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        check(folder)
    finally:
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0


def test_every_command_of_the_makefile_that_it_names_is_there():
    makefile = document("Makefile")
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", README, re.MULTILINE))
    named = {name for pair in named for name in pair if name}
    assert named
    assert {name for name in named if not re.search(rf"^{name}:", makefile, re.MULTILINE)} == set()
