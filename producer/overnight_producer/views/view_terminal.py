"""Show a job live on a terminal: a bar, the figures, and what is in the way; lines of text above."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING, cast

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from overnight_producer.views import standing
from overnight_producer.views.task_lines import TaskLines, left_out_line, line_of
from overnight_producer.views.wording import counted, duration, pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.ranges import Decision
    from overnight_producer.jobs.records import Progress
    from overnight_producer.views.outlet import Outlet

WIDEST_BAR = 48
NARROWEST_BAR = 8
# One glyph and one style for each part, so that it can be read without colours too.
BAR_PARTS = (("━", "=", "green"), ("╌", "x", "red"), ("╍", "~", "cyan"), ("─", "-", "bright_black"))


class TerminalView:
    """Draw the figures in place, a few lines high, with what is said above them."""

    def __init__(
        self,
        spec: JobSpec,
        outlet: Outlet,
        verbose: bool = False,
        console: Console | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spec = spec
        self._console = console or Console(
            file=cast("IO[str]", outlet), force_terminal=True, highlight=False, markup=False, emoji=False
        )
        self._monotonic = monotonic
        self._clock = clock
        self._tasks = TaskLines(self._say_task, self._say_left_out, verbose, monotonic)
        self._patience = standing.Patience(monotonic=monotonic)
        # No thread draws: everything happens in the thread that calls, between two cycles of the driver.
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._began = monotonic()
        self._done_before: int | None = None
        self._latest: Snapshot | None = None
        self._finished = False

    def start(self) -> None:
        """Say what the job is and begin to draw."""
        self._began = self._monotonic()
        self._console.print(Text(standing.title(self._spec), style="bold"), soft_wrap=True)
        self._live.start()

    def show(self, snapshot: Snapshot) -> None:
        """Draw the figures of this moment."""
        if self._finished:
            return
        self._latest = snapshot
        if self._done_before is None:
            self._done_before = snapshot.progress.done
        self._tasks.tick()
        lonely = self._patience.over(standing.nobody_takes(snapshot))
        self._live.update(self._picture(snapshot, lonely), refresh=True)

    def say(self, text: str) -> None:
        """Print the text above the figures."""
        self._tasks.flush()
        self._console.print(Text(text), soft_wrap=True)

    def task(self, reply: Reply, decision: Decision) -> None:
        """Print what became of a task, as far as a few lines a second allow."""
        self._tasks.task(reply, decision)

    def finish(self, ending_text: str, exit_status: int | None = None, state: str = "") -> None:  # noqa: ARG002 - part of the protocol
        """Leave the bar as it is at the end, give the terminal back, and say how it ended."""
        if self._finished:
            return
        self._finished = True
        self._tasks.flush()
        if self._latest is not None:
            self._live.update(self._last_picture(self._latest), refresh=True)
        self._live.stop()
        style = "" if exit_status is None else "green" if exit_status == 0 else "yellow"
        if ending_text:
            self._console.print(Text(ending_text, style=style), soft_wrap=True)

    def _picture(self, snapshot: Snapshot, lonely: bool) -> Group:
        parts = [
            Text(pace(snapshot.rate)) if snapshot.progress.done and not snapshot.paused else None,
            _text(standing.slots_phrase(snapshot)),
            _text(standing.ending_phrase(snapshot, self._clock()), "bold"),
            _text(standing.tasks_phrase(snapshot), "bright_black"),
        ]
        troubles = standing.troubles(snapshot, self._spec, lonely)
        return Group(
            self._head(snapshot),
            *pack([part for part in parts if part], self._console.width),
            *(Text(f"! {trouble}", style="yellow") for trouble in troubles),
        )

    def _last_picture(self, snapshot: Snapshot) -> Group:
        seconds = max(self._monotonic() - self._began, 1e-3)
        done = snapshot.progress.done - (self._done_before or 0)
        if done <= 0:
            return Group(self._head(snapshot))
        summary = f"{counted(done, 'point')} in {duration(seconds)}, {pace(done / seconds)}"
        return Group(self._head(snapshot), Text(summary))

    def _head(self, snapshot: Snapshot) -> Group:
        """Return the bar with the counts beside it, or below it where the terminal is narrow."""
        parts = [
            Text(standing.percent_phrase(snapshot).rjust(5), style="bold"),
            Text(standing.points_phrase(snapshot)),
            _text(standing.given_up_phrase(snapshot), "bold red"),
        ]
        counts = Text("  ").join(part for part in parts if part)
        width = self._console.width
        room = width - counts.cell_len - 2
        bar = progress_bar(
            snapshot.progress,
            min(room if room >= NARROWEST_BAR else width, WIDEST_BAR),
            ascii_only=self._console.options.ascii_only,
        )
        if room >= NARROWEST_BAR:
            return Group(Text.assemble(bar, "  ", counts))
        return Group(bar, *pack([part for part in parts if part], width))

    def _say_task(self, reply: Reply, decision: Decision) -> None:
        style = "red" if reply.kind == "failed" else "bright_black"
        self._console.print(Text(line_of(reply, decision, self._console.width), style=style), soft_wrap=True)

    def _say_left_out(self, failed: int, finished: int) -> None:
        self._console.print(Text(left_out_line(failed, finished), style="bright_black"), soft_wrap=True)


def progress_bar(progress: Progress, width: int, ascii_only: bool = False) -> Text:
    """Return a bar of `width` cells: done, given up, on its way, and the rest.

    What there is of a part shows, however little, and it is full only when every point is dealt with.
    """
    total = max(progress.total, 1)
    on_its_way = progress.published + progress.running
    cells, used, points = [], 0, 0
    for part in (progress.done, progress.given_up, on_its_way):
        points += part
        end = width if points >= total else width - 1
        cells.append(max(min(max(width * points // total - used, 1 if part else 0), end - used), 0))
        used += cells[-1]
    cells.append(max(width - used, 0))
    bar = Text()
    for (glyph, letter, style), length in zip(BAR_PARTS, cells, strict=True):
        bar.append((letter if ascii_only else glyph) * length, style=style)
    return bar


def pack(parts: Iterable[Text], width: int, gap: str = "   ") -> list[Text]:
    """Return the parts side by side in as few lines as hold them without breaking one."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + cell_len(gap) + part.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], gap, part)
        else:
            lines.append(part.copy())
    return lines


def _text(words: str, style: str = "") -> Text | None:
    return Text(words, style=style) if words else None
