"""Keep what cannot go on because its reply queue was not seen, by the name of that queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight_consumer.held import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from overnight_consumer.held import Held


class Parked:
    """Keep tasks that wait for a look at their reply queue, and those whose reply found none."""

    def __init__(self) -> None:
        self._by_queue: dict[str, list[Held]] = {}

    def __len__(self) -> int:
        return sum(len(parked) for parked in self._by_queue.values())

    def __iter__(self) -> Iterator[str]:
        """Give the names of the reply queues."""
        return iter(list(self._by_queue))

    def stranded(self, is_missing: Callable[[str], bool]) -> list[Held]:
        """Return those that cannot go on now: their reply queue was looked for and not found."""
        return [held for name, parked in self._by_queue.items() if is_missing(name) for held in parked]

    def add(self, held: Held) -> None:
        """Keep one."""
        self._by_queue.setdefault(held.task.reply_to, []).append(held)

    def take(self, reply_to: str, stage: Stage | None = None) -> list[Held]:
        """Take out all of one queue, or those at `stage`."""
        parked = self._by_queue.pop(reply_to, [])
        if stage is None:
            return parked
        left = [held for held in parked if held.stage is not stage]
        if left:
            self._by_queue[reply_to] = left
        return [held for held in parked if held.stage is stage]

    def sweep(self) -> None:
        """Leave out what has been settled."""
        for reply_to in self:
            self.take(reply_to, Stage.SETTLED)
