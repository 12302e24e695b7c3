"""Explain why points were run more than once: each further run is charged to a fault, which pays for so many.

Pure. A point that runs again must have been begun before, and between the two beginnings something must have
gone wrong that could send it round again: a child killed with it, whoever held its delivery un-acked cut off, or its
reply lost with all queues.
A driver whose publish was left in doubt sends a task again too; the job file counts those.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from chaos.schedule import Kind

# What a consumer of two slots may hold un-acked: up to 100 ms of work a slot, and the mean task takes over 12 ms.
HELD_TASKS = 16
# A kill or a cut is noticed within this time, by whoever has to notice it.
NOTICED_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Happened:
    """Say what was really done.

    Attributes:
        kind: what.
        whom: the victim, in words.
        began, ended: monotonic seconds.
        consumers: how many consumers it cut off from what they held.
        unread: points with a reply that may have been lost with its queue.
    """

    kind: Kind
    whom: str
    began: float
    ended: float
    consumers: int
    unread: int = 0

    def tasks(self) -> int:
        """Return how many tasks it may have sent round again."""
        if self.kind is Kind.CHILD:
            return 1
        return self.consumers * HELD_TASKS


@dataclass(frozen=True, slots=True)
class Rerun:
    """Be one further run of a point, begun at `again` when it had been begun at `before`."""

    point: int
    before: float
    again: float


def reruns(begun: dict[int, list[float]]) -> list[Rerun]:
    """Return the runs after the first of each point, given when its runs began."""
    found = []
    for point, times in begun.items():
        found += [Rerun(point, *pair) for pair in pairwise(sorted(times))]
    return found


def unexplained(again: list[Rerun], faults: list[Happened], batch: int, republished: int) -> list[Rerun]:
    """Return the further runs that no fault pays for.

    Args:
        again: all of them.
        faults: what went wrong.
        batch: points of the largest task.
        republished: tasks that the driver published anew because it was in doubt, at any time.
    """
    room = [fault.tasks() * batch + fault.unread for fault in faults] + [republished * batch]
    suspects = [
        [
            number
            for number, fault in enumerate(faults)
            if fault.began <= rerun.again and fault.ended + NOTICED_SECONDS >= rerun.before
        ]
        + [len(faults)]
        for rerun in again
    ]
    paid_for: list[list[int]] = [[] for _ in room]
    return [
        rerun for number, rerun in enumerate(again) if not _charge(number, suspects, room, paid_for, set())
    ]


def _charge(
    rerun: int, suspects: list[list[int]], room: list[int], paid_for: list[list[int]], asked: set[int]
) -> bool:
    """Charge one run to a fault, moving others to further suspects of theirs if that makes room."""
    for fault in suspects[rerun]:
        if fault in asked:
            continue
        asked.add(fault)
        if len(paid_for[fault]) < room[fault]:
            paid_for[fault].append(rerun)
            return True
        for number, other in enumerate(paid_for[fault]):
            if _charge(other, suspects, room, paid_for, asked):
                paid_for[fault][number] = rerun
                return True
    return False
