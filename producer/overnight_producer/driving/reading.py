"""Read what came to a reply queue, where strangers may write too; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from overnight_common.errors import DecodeError
from overnight_common.messages import Encoded, Reply, decode_reply, unbundle
from overnight_common.values import count_values
from overnight_producer.jobs.ranges import outside

if TYPE_CHECKING:
    from overnight_producer.jobs.jobspec import JobSpec

_FAULTS_NAMED = 3


def usable_replies(body: bytes, spec: JobSpec) -> tuple[list[Reply], str]:
    """Return the replies in a message that this job can use, and why it is a dead letter; empty if it is none."""
    replies: list[Reply] = []
    faults: list[str] = []
    try:
        bundled = unbundle(body)
    except DecodeError as error:
        return [], str(error)
    for each in bundled:
        try:
            replies.append(_usable(decode_reply(each), spec))
        except DecodeError as error:
            faults.append(str(error))
    more = f"; and {len(faults) - _FAULTS_NAMED} more" if len(faults) > _FAULTS_NAMED else ""
    return replies, "; ".join(faults[:_FAULTS_NAMED]) + more


def _usable(reply: Reply, spec: JobSpec) -> Reply:
    if reply.job != spec.id or outside(reply, spec.start, spec.stop):
        raise DecodeError(f"a reply for [{reply.start}, {reply.stop}) of job {reply.job}")
    if not (math.isfinite(reply.seconds) and max(reply.slot, reply.peak_rss_bytes) < 2**63):
        raise DecodeError("a reply with figures that no job file can hold")
    points = reply.stop - reply.start
    if reply.result is not None and not _fits(reply.result, points):
        raise DecodeError(f"a reply with other than {points} results")
    return reply


def _fits(result: Encoded, points: int) -> bool:
    try:
        return count_values(result) == points
    except DecodeError:
        return False
