"""Read what came to a reply queue, where strangers may write too; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from overnight_common.errors import DecodeError
from overnight_common.messages import Encoded, Reply, decode_reply
from overnight_common.values import count_values
from overnight_producer.jobs.ranges import outside

if TYPE_CHECKING:
    from overnight_producer.jobs.jobspec import JobSpec


def usable_reply(body: bytes, spec: JobSpec) -> Reply:
    """Return the reply in a message.

    Raises:
        DecodeError: it is none, or of no use to this job; the reason is for the dead letter.
    """
    reply = decode_reply(body)
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
