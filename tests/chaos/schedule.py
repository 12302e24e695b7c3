"""Draw up what goes wrong and when; the same seed gives the same schedule."""

from __future__ import annotations

import enum
import random
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


# How often, among the others.
RABBITMQ = {Kind.CHILD: 6, Kind.CONSUMER: 3, Kind.DRIVER: 2, Kind.BROKER: 1, Kind.CUT: 4, Kind.STALL: 2}
EMBEDDED = {Kind.CHILD: 6, Kind.CONSUMER: 3, Kind.DRIVER: 3, Kind.LOCK: 2}
FIRST_SECONDS, GAP_SECONDS = 2.0, (0.3, 2.0)
LASTS_SECONDS = {
    Kind.CHILD: (0.0, 0.0),
    Kind.CONSUMER: (0.0, 2.0),
    Kind.DRIVER: (0.0, 2.0),
    Kind.BROKER: (0.0, 1.0),
    Kind.CUT: (0.0, 3.0),
    Kind.STALL: (0.2, 3.0),
    Kind.LOCK: (0.2, 3.0),
}
# One stall in four outlasts the heartbeats, so that both sides give the link up.
LONG_STALL_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Be one thing that goes wrong.

    Attributes:
        at: seconds from the beginning.
        kind: what.
        victim: who, a number that the stage maps onto who is there.
        lasts: seconds until it is mended: the link is back, the process started again.
    """

    at: float
    kind: Kind
    victim: int
    lasts: float


def schedule(seed: int, seconds: float, weights: dict[Kind, int]) -> list[Fault]:
    """Return the faults of a run in order; each kind comes up at least once if there is room."""
    chance = random.Random(f"chaos {seed}")
    times: list[float] = []
    at = FIRST_SECONDS
    while at < seconds:
        times.append(at)
        at += chance.uniform(*GAP_SECONDS)
    kinds = list(weights)[: len(times)]
    kinds += chance.choices(list(weights), list(weights.values()), k=len(times) - len(kinds))
    chance.shuffle(kinds)
    return [_fault(at, kind, chance) for at, kind in zip(times, kinds, strict=True)]


def _fault(at: float, kind: Kind, chance: random.Random) -> Fault:
    lasts = chance.uniform(*LASTS_SECONDS[kind])
    if kind is Kind.STALL and chance.random() < 0.25:
        lasts = LONG_STALL_SECONDS
    return Fault(round(at, 2), kind, chance.randrange(1000), round(lasts, 2))


def batches(seed: int) -> random.Random:
    """Return the source of the batch sizes, one for each start of the driver."""
    return random.Random(f"batches {seed}")
