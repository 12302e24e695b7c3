"""Define what the parent remembers of a task from its delivery to its ack."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight_common.brokers.base import Delivery
    from overnight_common.messages import Task
    from overnight_consumer.intake import Intake


DONE = "done"


class Stage(enum.Enum):
    """Say where a task is."""

    WAITING = "waiting"  # for a slot, or for a look at its reply queue
    GIVEN = "given"  # to a slot's child, behind the task that runs there
    RUNNING = "running"
    ANSWERED = "answered"  # its reply is not confirmed yet
    SETTLED = "settled"


IN_A_SLOT = (Stage.GIVEN, Stage.RUNNING)


@dataclass(slots=True, eq=False)
class Held:
    """Hold one task.

    Attributes:
        task: the decoded task.
        delivery: what to settle in the end; None once it is void (the broker took it back).
        intake: the queue that it came from.
        body: the task as it came, for the child.
        delivery_count: how often it had been handed out before.
        stage: where it is.
        slot: number of the slot that runs or ran it, 0 if none.
        dispatched_at: monotonic seconds; 0 if not yet.
        running_said_at: monotonic seconds of the last `running` reply.
        reply: the encoded reply that is to be confirmed; empty before.
        outcome: what it tells: `done` or a cause; empty before.
        run_seconds: how long the method ran, 0 if it did not.
        wait_noted: whoever looks on knows how long it waited.
    """

    task: Task
    delivery: Delivery | None
    intake: Intake
    body: bytes
    delivery_count: int
    stage: Stage = Stage.WAITING
    slot: int = 0
    dispatched_at: float = 0.0
    running_said_at: float = 0.0
    long: bool = False
    reply: bytes = b""
    outcome: str = ""
    run_seconds: float = 0.0
    wait_noted: bool = False
