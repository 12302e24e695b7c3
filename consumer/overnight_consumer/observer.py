"""Define who may look on at a consumer's work, and what they hear; they decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overnight_consumer.deaths import ExitReason
    from overnight_consumer.held import Held
    from overnight_consumer.slot_states import SlotState, StartReason


@dataclass(frozen=True, slots=True)
class IntakeSight:
    """Show one queue that tasks come from.

    Attributes:
        queue: its full name.
        consuming: tasks would really come.
        paused: nothing is taken because this consumer was accused.
        prefetch: how many deliveries may be held.
    """

    queue: str
    consuming: bool
    paused: bool
    prefetch: int


@dataclass(frozen=True, slots=True)
class SlotSight:
    """Show one slot.

    Attributes:
        state: what it does.
        busy_seconds: how long it has been busy in all, until now.
        task_seconds: how long the task that it runs has run until now, 0 if it runs none.
        held: that task.
    """

    state: SlotState
    busy_seconds: float
    task_seconds: float
    held: Held | None


@dataclass(frozen=True, slots=True)
class Sight:
    """Show a consumer at one moment; `held` counts its un-acked deliveries."""

    intakes: tuple[IntakeSight, ...] = ()
    slots: tuple[SlotSight, ...] = ()
    held: int = 0
    draining: bool = False


class Observer(Protocol):
    """Hear what happens; every call comes from the loop, and what it raises goes no further (`shielded`).

    Tasks may be many: only `confirmed` is called for them, and for several at a time. All else is rare, or has
    its own pace.
    """

    def confirmed(self, answered: Sequence[Held], seconds: float) -> None:
        """The broker has the replies to tasks safely, which took it so long; each `Held` says what it was told."""

    def child_started(self, number: int, pid: int, why: StartReason) -> None:
        """A slot has started a child."""

    def child_ended(self, number: int, pid: int, how: ExitReason) -> None:
        """A child is gone."""

    def accused(self, queue: str) -> None:
        """This consumer takes nothing from a queue for a while, since it is at fault itself."""

    def seen(self, sight: Sight) -> None:
        """This is how things are; called four times a second."""


class Nobody:
    """Be the observer when nobody looks on."""

    def confirmed(self, answered: Sequence[Held], seconds: float) -> None:
        """Do nothing."""

    def child_started(self, number: int, pid: int, why: StartReason) -> None:
        """Do nothing."""

    def child_ended(self, number: int, pid: int, how: ExitReason) -> None:
        """Do nothing."""

    def accused(self, queue: str) -> None:
        """Do nothing."""

    def seen(self, sight: Sight) -> None:
        """Do nothing."""


NOBODY: Observer = Nobody()
