"""Hold back tasks that may have killed the consumers that had them, until each can run alone."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from overnight_consumer.held import Stage

if TYPE_CHECKING:
    from overnight_consumer.held import Held

# A task with so few deliveries left is held alone: it may be what killed the consumers that had it.
_LAST_CHANCES = 2
# Short tasks are done by then; for long ones a suspect does not keep a slot idle.
_PATIENCE_SECONDS = 5.0


class Suspects:
    """Keep the suspects of one consumer in the order in which they came.

    If a suspect kills us, the broker charges a delivery to all that we hold: so it runs when all else is done.

    Args:
        max_deliveries: a task lost so often is not run again.
    """

    def __init__(self, max_deliveries: int) -> None:
        self._from_count = max(1, max_deliveries - _LAST_CHANCES)
        self._held: deque[tuple[float, Held]] = deque()  # since when each waits

    def __len__(self) -> int:
        return len(self._held)

    def suspected(self, delivery_count: int) -> bool:
        """Tell whether a task that was handed out so often before is one."""
        return delivery_count >= self._from_count

    def add(self, held: Held, now: float) -> None:
        """Hold one back."""
        self._held.append((now, held))

    def next(self, all_held: int, now: float) -> Held | None:
        """Take out the one that may run now, if any; nothing else may wait for a slot.

        Args:
            all_held: how many tasks the consumer has, these included.
            now: monotonic seconds.
        """
        if not self._held:
            return None
        # Who kills has been in each loss, its neighbours not: so it has the highest count, and comes last.
        chosen = min(self._held, key=lambda each: each[1].delivery_count)
        since, held = chosen
        if all_held > len(self._held) and now - since < _PATIENCE_SECONDS:
            return None
        self._held.remove(chosen)
        return held

    def sweep(self) -> None:
        """Leave out what has been settled."""
        self._held = deque(each for each in self._held if each[1].stage is Stage.WAITING)
