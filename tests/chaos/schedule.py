"""Draw up what goes wrong and when; the same seed gives the same schedule."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator
from dataclasses import dataclass


class Kind(enum.StrEnum):
    """Name what can be done to a running job."""

    CHILD = "child killed"
    CONSUMER = "consumer killed"
    DRIVER = "driver killed"
    BROKER = "broker killed"
    CUT = "link cut"
    STALL = "link stalled"
    LOCK = "broker's file locked"
    ALARM = "memory alarm"
    WIPED = "broker's disk wiped"


# A deck of faults, which is shuffled and dealt again and again: in each, every kind comes up so many times.
RABBITMQ = {
    Kind.CHILD: 6,
    Kind.CONSUMER: 3,
    Kind.DRIVER: 2,
    Kind.BROKER: 1,
    Kind.CUT: 4,
    Kind.STALL: 2,
    Kind.ALARM: 1,
    Kind.WIPED: 1,
}
EMBEDDED = {Kind.CHILD: 6, Kind.CONSUMER: 3, Kind.DRIVER: 3, Kind.LOCK: 2}
AFTER_SECONDS = (0.2, 1.6)
LASTS_SECONDS = {
    Kind.CHILD: (0.0, 0.0),
    Kind.CONSUMER: (0.0, 2.0),
    Kind.DRIVER: (0.0, 2.0),
    Kind.BROKER: (0.0, 1.0),
    Kind.CUT: (0.0, 3.0),
    Kind.STALL: (0.2, 3.0),
    Kind.LOCK: (0.2, 3.0),
    Kind.ALARM: (0.5, 4.0),
    Kind.WIPED: (0.0, 1.0),
}
# One stall in four outlasts the heartbeats, so that both sides give the link up.
LONG_STALL_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Be one thing that goes wrong.

    Attributes:
        after: seconds of work since the one before.
        kind: what.
        victim: who, a number that the stage maps onto who is there.
        lasts: seconds until it is mended: the link is back, the process started again.
    """

    after: float
    kind: Kind
    victim: int
    lasts: float


def schedule(seed: int, deck: dict[Kind, int]) -> Iterator[Fault]:
    """Yield faults for ever."""
    chance = random.Random(f"chaos {seed}")
    kinds = [kind for kind, times in deck.items() for _ in range(times)]
    while True:
        chance.shuffle(kinds)
        yield from [_fault(kind, chance) for kind in kinds]


def _fault(kind: Kind, chance: random.Random) -> Fault:
    after = chance.uniform(*AFTER_SECONDS)
    lasts = chance.uniform(*LASTS_SECONDS[kind])
    if kind is Kind.STALL and chance.random() < 0.25:
        lasts = LONG_STALL_SECONDS
    return Fault(round(after, 2), kind, chance.randrange(1000), round(lasts, 2))


def batches(seed: int) -> random.Random:
    """Return the source of the batch sizes, one for each start of the driver."""
    return random.Random(f"batches {seed}")
