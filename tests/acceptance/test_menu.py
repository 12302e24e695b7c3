"""`overnight` alone on a terminal asks for what the story's program asked for, and runs it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.command_line import Desk

if TYPE_CHECKING:
    from collections.abc import Iterator

END_OF_INPUT = b"\x04"
CTRL_C = b"\x03"
# Makes the terminal the one that rules the process, so that Ctrl-C reaches it, then becomes `overnight`.
AT_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "overnight_producer"])
"""


class Terminal:
    """Be a person at a terminal in which `overnight` runs."""

    def __init__(self, desk: Desk) -> None:
        self._screen, terminal = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OVERNIGHT_")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", AT_THE_TERMINAL],
            cwd=desk.folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
            start_new_session=True,
        )
        os.close(terminal)
        self.seen = ""
        self._read_to = 0

    def answer(self, prompt: str, keys: str) -> None:
        """Wait for a prompt that was not answered yet, then type a line."""
        self.read_until(prompt)
        os.write(self._screen, keys.encode() + b"\n")

    def leave(self, prompt: str, key: bytes) -> int:
        """Wait for a prompt, then press a key until the program ends; return its exit status.

        Python notices a Ctrl-C that comes just before it waits for input only at the next one.
        """
        self.read_until(prompt)
        for _ in range(10):
            os.write(self._screen, key)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(8)  # a second one while it ends would interrupt that
                break
        return self.exit_status()

    def read_until(self, text: str, seconds: float = 60.0) -> None:
        """Read the screen until something new is on it."""
        give_up = time.monotonic() + seconds
        while text not in self.seen[self._read_to :]:
            assert time.monotonic() < give_up, f"{text!r} is not in {self.seen!r}"
            assert self._read(), f"it ended without {text!r}: {self.seen!r}"
        self._read_to = self.seen.index(text, self._read_to) + len(text)

    def exit_status(self) -> int:
        """Read to the end and return the exit status."""
        while self._read():
            pass
        return self.process.wait(60)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], 60)
        assert ready, f"nothing more is said after {self.seen!r}"
        try:
            more = os.read(self._screen, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += more.decode(errors="replace")
        return bool(more)

    def close(self) -> None:
        """Go away."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._screen)


@pytest.fixture
def terminal(desk: Desk) -> Iterator[Terminal]:
    with contextlib.closing(Terminal(desk)) as opened:
        yield opened


def test_the_menu_asks_again_for_wrong_numbers_and_runs_what_was_chosen(
    desk: Desk, terminal: Terminal
) -> None:
    terminal.answer("Your choice", "7")
    terminal.answer("Your choice", "1")
    terminal.answer("Method", "counted:sqare")
    terminal.answer("Method", "counted:square")
    terminal.answer("Data set", "range:10")
    terminal.answer("Start index", "three")
    terminal.answer("Start index", "10")
    terminal.answer("Start index", "3")
    terminal.answer("Batch size", "0")
    terminal.answer("Batch size", "2")
    terminal.answer("Number of workers", "-1")
    terminal.answer("Number of workers", "2")

    assert terminal.exit_status() == 0, terminal.seen
    assert "7 of 7 points done; write the results out with: overnight export FILE" in terminal.seen
    for complaint in (
        "none of the choices",
        "sqare",
        "no whole number",
        "beyond the last point",
        "too small",
    ):
        assert complaint in terminal.seen
    assert desk.points_done() == list(range(3, 10))
    with desk.job() as job:
        assert [(row.start, row.stop) for row in job.results()] == [(3, 5), (5, 7), (7, 9), (9, 10)]


def test_the_menu_ends_when_told_to(terminal: Terminal) -> None:
    terminal.answer("Your choice", "2")

    assert terminal.exit_status() == 0


@pytest.mark.parametrize("key", [END_OF_INPUT, CTRL_C], ids=["end-of-input", "ctrl-c"])
def test_the_menu_can_be_left_at_any_question(desk: Desk, terminal: Terminal, key: bytes) -> None:
    terminal.answer("Your choice", "1")

    assert terminal.leave("Method", key) == 130, terminal.seen
    assert "Traceback" not in terminal.seen
    assert not desk.home.exists()


def test_the_menu_offers_to_go_on_with_what_was_interrupted(desk: Desk) -> None:
    desk.hold(4)
    driver = desk.start("run", "counted:noisy", "--data", "range:8", "--batch", "2")
    driver.wait_until(lambda: desk.noted("held"))
    driver.kill()
    desk.let_go()

    with contextlib.closing(Terminal(desk)) as terminal:
        terminal.answer("Your choice", "2")

        assert terminal.exit_status() == 0, terminal.seen
        assert "resume counted:noisy" in terminal.seen
    assert desk.points_done() == list(range(8))
    assert set(desk.calls().values()) == {1}


def test_without_a_terminal_the_help_is_shown(desk: Desk) -> None:
    ended = desk.overnight()

    assert ended.status == 0, ended
    assert "Usage" in ended.output
    assert "resume" in ended.output
