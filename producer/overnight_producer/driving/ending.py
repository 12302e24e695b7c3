"""Say how driving a job ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EndingKind(enum.Enum):
    """Name how driving can end."""

    DONE = "done"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Ending:
    """Say how driving ended, and why."""

    kind: EndingKind
    why: str = ""
