"""Read what came to a reply queue, where strangers may write too; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from overnight_common.errors import DecodeError
from overnight_common.messages import Encoded, Reply, decode_replies
from overnight_common.values import count_values
from overnight_producer.jobs.ranges import outside

if TYPE_CHECKING:
    from overnight_producer.jobs.jobspec import JobSpec


def usable_replies(body: bytes, spec: JobSpec) -> tuple[list[Reply], str]:
    """Return the replies in a message that this job can use, and why it is a dead letter; empty if it is none."""
    try:
        replies = decode_replies(body)
    except DecodeError as error:
        return [], str(error)
    faults = [_fault(reply, spec) for reply in replies]
    usable = [reply for reply, fault in zip(replies, faults, strict=True) if not fault]
    return usable, "; ".join(fault for fault in faults if fault)


def _fault(reply: Reply, spec: JobSpec) -> str:
    if reply.job != spec.id or outside(reply, spec.start, spec.stop):
        return f"a reply for [{reply.start}, {reply.stop}) of job {reply.job}"
    if not (math.isfinite(reply.seconds) and max(reply.slot, reply.peak_rss_bytes) < 2**63):
        return "a reply with figures that no job file can hold"
    points = reply.stop - reply.start
    if reply.result is not None and not _fits(reply.result, points):
        return f"a reply with other than {points} results"
    return ""


def _fits(result: Encoded, points: int) -> bool:
    try:
        return count_values(result) == points
    except DecodeError:
        return False
