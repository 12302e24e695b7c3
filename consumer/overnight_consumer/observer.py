"""Define who may look on at a consumer's work, and what they hear; they decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from overnight_consumer.deaths import ExitReason
    from overnight_consumer.held import Held
    from overnight_consumer.slots import SlotState, StartReason


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
class Sight:
    """Show a consumer at one moment; `held` counts its un-acked deliveries."""

    intakes: tuple[IntakeSight, ...] = ()
    held: int = 0
    draining: bool = False


class Observer(Protocol):
    """Hear what happens; every call comes from the loop, and what it raises goes no further (`shielded`)."""

    def slot_is(self, number: int, state: SlotState) -> None:
        """A slot has changed its state, but for `started`."""

    def child_started(self, number: int, pid: int, why: StartReason) -> None:
        """A slot has started a child."""

    def child_ended(self, number: int, pid: int, how: ExitReason) -> None:
        """A child is gone."""

    def started(self, held: Held) -> None:
        """A task was given to a child: the slot `held.slot` is busy from now on."""

    def confirmed(self, held: Held, seconds: float) -> None:
        """The broker has the reply safely, `seconds` after it was sent; `held` says what it tells."""

    def accused(self, queue: str) -> None:
        """This consumer takes nothing from a queue for a while, since it is at fault itself."""

    def seen(self, sight: Sight) -> None:
        """This is how things are; called a few times a second."""


class Nobody:
    """Be the observer when nobody looks on."""

    def slot_is(self, number: int, state: SlotState) -> None:
        """Do nothing."""

    def child_started(self, number: int, pid: int, why: StartReason) -> None:
        """Do nothing."""

    def child_ended(self, number: int, pid: int, how: ExitReason) -> None:
        """Do nothing."""

    def started(self, held: Held) -> None:
        """Do nothing."""

    def confirmed(self, held: Held, seconds: float) -> None:
        """Do nothing."""

    def accused(self, queue: str) -> None:
        """Do nothing."""

    def seen(self, sight: Sight) -> None:
        """Do nothing."""


NOBODY: Observer = Nobody()
