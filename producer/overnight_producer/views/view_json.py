"""Show a job as one JSON object a line, for another program; figures are raw, units are in the keys."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from overnight_producer.views.line_view import LineView
from overnight_producer.views.task_lines import consequence

if TYPE_CHECKING:
    from overnight_common.messages import Reply
    from overnight_producer.driving.snapshot import Snapshot
    from overnight_producer.jobs.ranges import Decision

LINE_SECONDS = 1.0


class JsonView(LineView):
    """Print an object with `event` each second: `progress`; between them `task`, `message`; at last `end`."""

    _due = 0.0
    _figures: dict[str, Any] | None = None

    def start(self) -> None:
        """Print what the job is."""
        spec = self._spec
        self._print(
            "start",
            method=spec.method,
            command=spec.command,
            data=spec.data_uri,
            queue=spec.queue,
            points=spec.points,
        )

    def show(self, snapshot: Snapshot) -> None:
        """Print the figures, once a second."""
        self._tasks.tick()
        self._figures = figures(snapshot) | {"troubles": self._troubles(snapshot)}
        now = self._monotonic()
        if now >= self._due:
            self._due = now + LINE_SECONDS
            self._print("progress", **self._figures)

    def say(self, text: str) -> None:
        """Print the text as a `message`."""
        self._tasks.flush()
        self._print("message", text=text)

    def finish(self, ending_text: str, exit_status: int | None = None, state: str = "") -> None:
        """Print the last figures with the ending."""
        if self._finished:
            return
        self._finished = True
        self._tasks.flush()
        figures = (self._figures or {}) | ({"state": state} if state else {})
        self._print("end", **figures, exit_status=exit_status, text=ending_text)

    def _say_task(self, reply: Reply, decision: Decision) -> None:
        failure = reply.failure
        self._print(
            "task",
            kind=reply.kind,
            start=reply.start,
            stop=reply.stop,
            attempt=reply.attempt,
            consumer=reply.consumer,
            slot=reply.slot,
            device=reply.device,
            task_seconds=reply.seconds,
            peak_rss_bytes=reply.peak_rss_bytes,
            cause=failure and failure.cause.value,
            error_type=failure and failure.type,
            error_message=failure and failure.message,
            consequence=consequence(decision) if failure else None,
        )

    def _say_left_out(self, failed: int, finished: int) -> None:
        self._print("tasks_left_out", failed=failed, finished=finished)

    def _print(self, event: str, **values: Any) -> None:
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        # Plain ASCII, so that no stream's encoding and no lone surrogate matters.
        self._outlet.line(json.dumps({"event": event, "at": at, "job": self._spec.id} | values))


def figures(snapshot: Snapshot) -> dict[str, Any]:
    """Return the figures of a moment; None where something is not known."""
    progress, depth = snapshot.progress, snapshot.depth
    return {
        "state": "paused" if snapshot.paused else progress.state.value,
        "points": progress.total,
        "points_done": progress.done,
        "points_given_up": progress.given_up,
        "points_waiting": progress.waiting,
        "points_published": progress.published,
        "points_running": progress.running,
        "tasks_done": progress.tasks_done,
        "task_seconds": progress.seconds,
        "points_per_second": snapshot.rate,
        "tasks_per_second": snapshot.tasks_per_second,
        "eta_seconds": snapshot.eta_seconds,
        "slots_busy": snapshot.slots_busy,
        "slots_seen": snapshot.slots_seen,
        "window_tasks": snapshot.window,
        "tasks_out": snapshot.tasks_out,
        "queue_ready": depth and depth.ready,
        "queue_unacked": depth and depth.unacked,
        "queue_consumers": depth and depth.consumers,
        "broker": snapshot.broker.value,
        "accused": dict(snapshot.accused),
        "longest_running": [
            {"start": start, "stop": stop, "consumer": consumer, "slot": slot, "seconds": seconds}
            for start, stop, consumer, slot, seconds in snapshot.running
        ],
    }
