"""Show a job to whoever looks on: choose among a live terminal, plain lines and JSON lines."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from overnight_producer.views.outlet import Outlet

if TYPE_CHECKING:
    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.jobspec import JobSpec
    from overnight_producer.jobs.ranges import Decision


class ConsoleKind(enum.Enum):
    """Name the ways to show a job."""

    TERMINAL = "terminal"
    PLAIN = "plain"
    JSON = "json"


class View(Protocol):
    """Show one job from beginning to end; never raises for the sake of what is looked at.

    All calls come from one thread. `task` fits `Reckoning`'s observer.
    """

    def start(self) -> None:
        """Say what the job is and begin to show it."""

    def show(self, snapshot: Snapshot) -> None:
        """Show the figures of this moment; called a few times a second."""

    def say(self, text: str) -> None:
        """Tell something that happened, above the figures."""

    def task(self, reply: Reply, decision: Decision) -> None:
        """Tell what became of a task; cheap, for it is called for every reply."""

    def finish(self, ending_text: str, exit_status: int | None = None, state: str = "") -> None:
        """Leave the last figures that were shown, then say how it ended; only the first call counts.

        `state` is that of the job from now on, where it is another than those figures told.
        """


def console_kind(
    stream: TextIO | None = None, *, as_json: bool = False, term: str | None = None
) -> ConsoleKind:
    """Return how to show a job on a stream (standard output if None); `term` is the variable TERM."""
    if as_json:
        return ConsoleKind.JSON
    plain = term == "dumb" or not Outlet(stream or sys.stdout).isatty()
    return ConsoleKind.PLAIN if plain else ConsoleKind.TERMINAL


def make_view(
    kind: ConsoleKind, spec: JobSpec, *, verbose: bool = False, stream: TextIO | None = None
) -> View:
    """Return the view of a job.

    Args:
        kind: how to show it.
        spec: the job.
        verbose: tell of each task that finishes too, not only of those that fail.
        stream: where to write, standard output if None.
    """
    outlet = Outlet(stream or sys.stdout)
    # Imported where needed: rich costs a good part of a short command's time.
    match kind:
        case ConsoleKind.TERMINAL:
            from overnight_producer.views.view_terminal import TerminalView

            return TerminalView(spec, outlet, verbose)
        case ConsoleKind.PLAIN:
            from overnight_producer.views.view_plain import PlainView

            return PlainView(spec, outlet, verbose)
        case ConsoleKind.JSON:
            from overnight_producer.views.view_json import JsonView

            return JsonView(spec, outlet, verbose)
