"""Hold what can be tuned about driving a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from overnight_producer.jobs.ranges import Policy


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """Hold what can be tuned about driving; all times in seconds.

    Attributes:
        max_message_bytes: limit of one message.
        window_seconds: how much work the window aims to hold.
        window: fixed number of tasks out, or None to find it by measuring.
        silence_seconds: after how long a silent task is asked for, and again until it is called lost.
        no_consumer_timeout_seconds: after how long without a working consumer the job pauses.
        group_seconds: replies that arrive within it share a commit.
        policy: attempts and back-off.
        leave_when_paused: end once the job is paused by request and nothing of it is out any more.
    """

    max_message_bytes: int
    window_seconds: float = 10.0
    window: int | None = None
    silence_seconds: float = 90.0
    no_consumer_timeout_seconds: float = 600.0
    group_seconds: float = 0.004
    policy: Policy = field(default_factory=Policy)
    leave_when_paused: bool = False
