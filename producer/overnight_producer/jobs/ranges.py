"""Decide what a reply, a silence or a failed publish does to a range of points; pure, no clock, no file.

A range is cut from the data set, published as a task, and leaves the table when its points are done or when
it is split. What it costs to fail is the table `WORTH`; how often a range may fail is `Policy`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from overnight_common.errors import PublishError, TooLargeError
from overnight_common.messages import Cause, Failure, Reply

if TYPE_CHECKING:
    from collections.abc import Mapping


class RangeState(enum.StrEnum):
    """Say where a range is; done and split ranges are not in the table at all."""

    WAITING = "waiting"
    PUBLISHED = "published"
    RUNNING = "running"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Range:
    """Hold the points `[start, stop)` of a job and what has happened to them so far.

    Attributes:
        start: index of the first point in the data set.
        stop: index after the last point.
        state: where it is.
        attempt: number of its latest publication; 0 if it was never published. Never goes back.
        charged: how many failures count on its budget.
        half: True if it came from a split: it gets fewer attempts before it is split again.
        last_cause: why the latest attempt failed, None if none did.
    """

    start: int
    stop: int
    state: RangeState = RangeState.WAITING
    attempt: int = 0
    charged: int = 0
    half: bool = False
    last_cause: Cause | None = None

    @property
    def points(self) -> int:
        """Return how many points it has."""
        return self.stop - self.start

    @property
    def in_flight(self) -> bool:
        """Tell whether a task for it is out: its failures count."""
        return self.state in (RangeState.PUBLISHED, RangeState.RUNNING)


@dataclass(frozen=True, slots=True)
class Policy:
    """Say how often a range may fail and how long it waits before it is published again.

    Attributes:
        point_attempts: for a single point, before it is given up.
        whole_attempts: for a range of several points as it was cut, before it is split.
        half_attempts: for a range of several points that came from a split.
        backoff_first: longest wait after the first failure, in seconds; doubled each time.
        backoff_max: longest wait of all, in seconds.
    """

    point_attempts: int = 3
    whole_attempts: int = 2
    half_attempts: int = 1
    backoff_first: float = 0.2
    backoff_max: float = 60.0


class Worth(enum.Enum):
    """Say what a failure costs the range."""

    ATTEMPT = "attempt"  # one attempt on the budget
    SPLIT = "split"  # several points are split at once; for a single point, one attempt
    FREE = "free"  # nothing: the consumer is accused; never charged, never split


WORTH: Mapping[Cause, Worth] = {
    Cause.EXCEPTION: Worth.ATTEMPT,
    Cause.BAD_RESULT: Worth.ATTEMPT,
    Cause.KILLED_BY_SIGNAL: Worth.ATTEMPT,
    Cause.EXIT_STATUS: Worth.ATTEMPT,
    Cause.LOST_CONSUMER: Worth.ATTEMPT,
    Cause.RESULT_TOO_LARGE: Worth.SPLIT,
    Cause.TIME_LIMIT: Worth.SPLIT,
    Cause.OUT_OF_MEMORY: Worth.SPLIT,
    Cause.METHOD_UNAVAILABLE: Worth.FREE,
    Cause.WRONG_FINGERPRINT: Worth.FREE,
    Cause.DATA_UNAVAILABLE: Worth.FREE,
    Cause.START_FAILED: Worth.FREE,
}


@dataclass(frozen=True, slots=True)
class Complete:
    """Keep the result: it fills what has none yet and lifts a giving-up; the complete leaves the table."""


@dataclass(frozen=True, slots=True)
class Again:
    """Let the range wait `delay_seconds`, then publish it as a new attempt; `charged` if it counts."""

    delay_seconds: float
    charged: bool


@dataclass(frozen=True, slots=True)
class Split:
    """Put two halves in the range's place."""

    left: Range
    right: Range


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Give up the single point, for this reason."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Running:
    """Note that a consumer has it in hand: it is not silent."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Ignore the reply and count it under `reason`."""

    reason: str


Decision = Complete | Again | Split | GiveUp | Running | Drop
Setback = Again | Split | GiveUp

UNKNOWN_RANGE = "unknown_range"  # split, done or never cut
STALE_ATTEMPT = "stale_attempt"  # an earlier publication of the range
NOT_IN_FLIGHT = "not_in_flight"  # this publication was answered before
DUPLICATE_RESULT = "duplicate_result"  # for the driver: a result for points that all have one


def decide(range_: Range | None, reply: Reply, policy: Policy, jitter: float) -> Decision:
    """Return what a reply does to the range that it names.

    Args:
        range_: the range with the reply's start and stop, or None if the table has no such range.
        reply: a reply for points of this job (see `outside`); probes are not for here.
        policy: attempts and waits.
        jitter: a random number in [0, 1), spreading the waits.
    """
    if reply.kind == "done":
        return Complete()
    if range_ is None:
        return Drop(UNKNOWN_RANGE)
    if reply.attempt != range_.attempt:
        return Drop(STALE_ATTEMPT)
    if not range_.in_flight:
        return Drop(NOT_IN_FLIGHT)
    if reply.failure is None:
        return Running()
    return failed(range_, reply.failure, policy, jitter)


def outside(reply: Reply, start: int, stop: int) -> bool:
    """Tell whether a reply speaks of points that are not in the job's `[start, stop)`: a dead letter."""
    return reply.start < start or reply.stop > stop


def failed(range_: Range, failure: Failure, policy: Policy, jitter: float) -> Setback:
    """Return what a failure of the current attempt does to a range."""
    worth = WORTH[failure.cause]
    if worth is Worth.FREE:
        # The consumer pauses by itself, so a longer wait here would only delay a good one.
        return Again(_wait(0, policy, jitter), charged=False)
    charged = range_.charged + 1
    if range_.points > 1 and (worth is Worth.SPLIT or charged >= _budget(range_, policy)):
        return _split(range_)
    if charged >= _budget(range_, policy):
        return GiveUp(failure)
    return Again(_wait(charged - 1, policy, jitter), charged=True)


def silent(range_: Range, policy: Policy, silent_seconds: float = 0.0) -> Setback:
    """Return what happens to a range whose task has vanished (a probe came back, it did not)."""
    failure = Failure(
        cause=Cause.LOST_CONSUMER,
        type="Silence",
        message=(
            f"attempt {range_.attempt} was never answered"
            + (f" within {silent_seconds:.0f} s" if silent_seconds else "")
            + ", though the queue moves on: the task was taken out of the queue or its consumer is cut off"
        ),
    )
    setback = failed(range_, failure, policy, 0.0)
    return replace(setback, delay_seconds=0.0) if isinstance(setback, Again) else setback


def publish_failed(range_: Range, error: PublishError, policy: Policy, jitter: float) -> Setback:
    """Return what a task does that the broker did not accept.

    A broken link or a full queue is not the task's fault: it waits and is not charged. Too large a message
    will never fit: several points are split, a single one is given up.
    """
    if isinstance(error, TooLargeError):
        if range_.points > 1:
            return _split(range_)
        return GiveUp(Failure(cause=Cause.EXCEPTION, type=type(error).__name__, message=str(error)))
    return Again(_wait(range_.attempt - 1, policy, jitter), charged=False)


def apply(range_: Range, decision: Decision, cause: Cause | None = None) -> list[Range]:
    """Return the ranges that take the place of `range_` in the table.

    Args:
        range_: as it is now.
        decision: what was decided about it.
        cause: why it failed, remembered in `last_cause`.
    """
    match decision:
        case Complete():
            return []
        case Split(left, right):
            return [replace(left, last_cause=cause), replace(right, last_cause=cause)]
        case Again(_delay_seconds, charged):
            waiting = RangeState.WAITING
            return [replace(range_, state=waiting, charged=range_.charged + charged, last_cause=cause)]
        case GiveUp(failure):
            return [
                replace(
                    range_, state=RangeState.GIVEN_UP, charged=range_.charged + 1, last_cause=failure.cause
                )
            ]
        case Running():
            return [replace(range_, state=RangeState.RUNNING)]
        case Drop():
            return [range_]


def published(range_: Range) -> Range:
    """Return the range as it is once it is sent: a new attempt. Commit it before the message leaves."""
    return replace(range_, state=RangeState.PUBLISHED, attempt=range_.attempt + 1)


def recalled(range_: Range) -> Range:
    """Return a range in flight as it is when its task is void (a new epoch): waiting, nothing charged."""
    return replace(range_, state=RangeState.WAITING)


def retried(range_: Range) -> Range:
    """Return a given-up range with a fresh budget; its attempts go on counting."""
    return replace(range_, state=RangeState.WAITING, charged=0)


def _budget(range_: Range, policy: Policy) -> int:
    if range_.points == 1:
        return policy.point_attempts
    return policy.half_attempts if range_.half else policy.whole_attempts


def _split(range_: Range) -> Split:
    middle = (range_.start + range_.stop) // 2
    return Split(Range(range_.start, middle, half=True), Range(middle, range_.stop, half=True))


def _wait(exponent: int, policy: Policy, jitter: float) -> float:
    longest = min(policy.backoff_first * 2.0 ** min(exponent, 64), policy.backoff_max)
    return longest * (0.5 + 0.5 * jitter)
