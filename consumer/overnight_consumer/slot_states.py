"""Name what a slot can be at, why it starts a child, and what it tells."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight_consumer.deaths import Death
    from overnight_consumer.frames import Answer
    from overnight_consumer.held import Held
    from overnight_consumer.slots import Slot


class SlotState(enum.Enum):
    """Say what a slot does."""

    STARTING = "starting"
    FREE = "free"
    BUSY = "busy"
    ENDING = "ending"  # its child has answered, and we kill it
    BACKOFF = "backoff"  # its child died while starting
    STOPPED = "stopped"


class StartReason(enum.StrEnum):
    """Name why a child is started; the list is closed."""

    FIRST = "first"
    DEATH = "death"  # the one before died, of itself or by us
    RENEWAL = "renewal"  # fresh code is wanted
    BACKOFF = "backoff"  # the one before died while starting
    RECYCLED_TASKS = "recycled_tasks"  # the one before has done its number of tasks
    RECYCLED_GROWTH = "recycled_growth"  # the one before has grown too much


class SlotListener(Protocol):
    """Hear from the slots."""

    def on_free(self, slot: Slot) -> None:
        """A child is warm and waits for a task."""

    def on_answer(self, slot: Slot, held: Held, answer: Answer) -> None:
        """A task was answered; the slot runs the next one given to it, or is free again but for `renew`."""

    def on_task_death(self, slot: Slot, held: Held, death: Death) -> None:
        """The child died with a task; a new one is on its way."""

    def on_unbegun(self, tasks: list[Held]) -> None:
        """These were given to a child that will not begin them; those recalled are among them."""

    def on_start_failure(self, slot: Slot, death: Death) -> None:
        """The child died while starting; another is started after a back-off."""
