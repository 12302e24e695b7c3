import io
import os
import pty
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from overnight_common.brokers.base import BrokerState
from overnight_producer.jobs.ranges import Again, Complete
from overnight_producer.views.outlet import Outlet
from overnight_producer.views.view import ConsoleKind, console_kind, make_view
from overnight_producer.views.view_json import JsonView
from overnight_producer.views.view_plain import PlainView
from overnight_producer.views.view_terminal import TerminalView, progress_bar
from support.job_files import spec_of
from support.standings import Clock, failed, finished, progress_of, snapshot_of

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

LOOKS_ON = """
import sys
from overnight_producer.views.view import ConsoleKind, console_kind, make_view
from support.job_files import spec_of
from support.standings import failed, snapshot_of
from overnight_producer.jobs.ranges import Again
kind = console_kind()
assert kind is ConsoleKind.TERMINAL, kind
view = make_view(kind, spec_of(1797))
view.start()
view.show(snapshot_of(812, given_up=3, out=100))
view.task(failed(0, 7), Again(0.2, True))
view.show(snapshot_of(1794, given_up=3))
view.finish("the ending", 1)
"""


class Shown:
    def __init__(self, width=80, verbose=False, encoding="utf-8"):
        self.raw, self.clock = io.BytesIO(), Clock()
        stream = io.TextIOWrapper(self.raw, encoding=encoding, write_through=True, newline="\n")
        console = Console(
            file=Outlet(stream), force_terminal=True, width=width, height=30, highlight=False, _environ={}
        )
        self.view = TerminalView(spec_of(1797), Outlet(stream), verbose, console, self.clock, lambda: 0.0)
        self.view.start()
        self.seen = 0

    def new_lines(self):
        """Return what was drawn since the last call, without escape sequences."""
        text = self.raw.getvalue()[self.seen :].decode()
        self.seen = len(self.raw.getvalue())
        return [line.split("\r")[-1] for line in ESCAPES.sub("", text).splitlines()]

    def draw(self, snapshot):
        self.new_lines()
        self.view.show(snapshot)
        return [line for line in self.new_lines() if line]


def test_the_picture_shows_how_far_how_fast_who_works_and_when_it_is_done():
    head, figures, tasks = Shown().draw(snapshot_of(812, given_up=3, out=100))
    assert head.endswith("   45 %  812 of 1,797 points  3 given up")
    assert figures.startswith("12.4 points/s   1.9 of 2 slots busy   1 min 19 s left, done about ")
    assert tasks == "window 16, 12 tasks out, 8 in the queue"


def test_troubles_stand_below_the_figures():
    lines = Shown().draw(
        snapshot_of(812, broker=BrokerState.DISCONNECTED, accused={"host-9": "start_failed: no"})
    )
    assert lines[-2].startswith("! no link to the broker")
    assert lines[-1] == "! consumer host-9 cannot do these tasks: start_failed: no"


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 81, 120, 200])
@pytest.mark.parametrize("done", [0, 1, 812, 1797])
def test_figures_never_break_a_line(width, done):
    lines = Shown(width).draw(snapshot_of(done, given_up=0 if done == 1797 else 3, out=0))
    assert all(len(line) <= width for line in lines)
    if width >= 79:
        assert len(lines) <= 3


def test_a_terminal_that_knows_only_ascii_gets_a_bar_too():
    head, *_ = Shown(encoding="ascii").draw(snapshot_of(812, given_up=3, out=400))
    assert re.match(r"=+x~+-+   45 %", head)


def test_lines_are_told_above_the_picture():
    shown = Shown(verbose=True)
    shown.draw(snapshot_of(7))
    shown.view.task(finished(7, 14), Complete())
    shown.view.task(failed(14, 21), Again(0.2, charged=True))
    lines = shown.new_lines()
    first = lines.index("slot 2 finished [7, 14) in 0.8 s")
    assert "slot 1 failed [14, 21): ValueError: no (attempt 1), again in 0.2 s" in lines[first:]
    assert lines[-1] == "window 16, 12 tasks out, 8 in the queue"


def test_the_end_leaves_the_bar_and_says_how_it_went():
    shown = Shown()
    shown.draw(snapshot_of(800))
    shown.clock.now += 100.0
    shown.draw(snapshot_of(1797))
    shown.view.finish("results in out.npy", 0)
    lines = [line for line in shown.new_lines() if line]
    assert lines[-3].endswith("100 %  1,797 of 1,797 points")
    assert lines[-2] == "997 points in 1 min 40 s, 9.97 points/s"
    assert lines[-1] == "results in out.npy"


def test_finishing_twice_or_showing_after_the_end_does_nothing():
    shown = Shown()
    shown.view.finish("done", 0)
    shown.new_lines()
    shown.view.finish("again", 0)
    shown.view.show(snapshot_of(3))
    assert shown.new_lines() == []


def test_markup_in_foreign_text_is_text():
    shown = Shown()
    shown.view.say("[red]not red[/red] :smile:")
    assert "[red]not red[/red] :smile:" in shown.new_lines()


def test_a_terminal_that_hung_up_does_not_harm_the_job():
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        view = make_view(ConsoleKind.TERMINAL, spec_of(1797), stream=stream)
        view.start()
        os.close(leader)
        for done in range(5):
            view.show(snapshot_of(done))
        view.finish("done", 0)


@given(st.integers(1, 5000), st.data(), st.integers(1, 120))
def test_the_bar_shows_every_part_and_is_full_only_at_the_end(total, data, width):
    done = data.draw(st.integers(0, total))
    given_up = data.draw(st.integers(0, total - done))
    out = data.draw(st.integers(0, total - done - given_up))
    bar = progress_bar(progress_of(done, total, given_up, out), width, ascii_only=True).plain
    assert len(bar) == width
    if width >= 4:
        assert ("=" in bar) >= (done > 0)
        assert ("-" in bar) == (done + given_up + out < total)
        assert (set(bar) == {"="}) == (done == total)


def test_on_a_real_terminal_the_cursor_comes_back_and_the_last_line_is_the_ending():
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-c", LOOKS_ON], stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        text = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux: the other end has been closed
                break
            if not piece:
                break
            text += piece
        assert process.wait() == 0, text
    os.close(leader)
    assert text.rfind(b"\x1b[?25h") > text.rfind(b"\x1b[?25l") >= 0
    assert ESCAPES.sub("", text.decode()).rstrip().endswith("the ending")


def test_the_kind_of_view_follows_the_stream():
    pipe = io.StringIO()
    assert console_kind(pipe) is ConsoleKind.PLAIN
    assert console_kind(pipe, as_json=True) is ConsoleKind.JSON
    assert isinstance(make_view(ConsoleKind.PLAIN, spec_of(3), stream=pipe), PlainView)
    assert isinstance(make_view(ConsoleKind.JSON, spec_of(3), stream=pipe), JsonView)


def test_a_dumb_terminal_gets_plain_lines():
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream, os.fdopen(leader):
        assert console_kind(stream) is ConsoleKind.TERMINAL
        assert console_kind(stream, term="dumb") is ConsoleKind.PLAIN
