"""Name the exit statuses of `overnight`."""

from __future__ import annotations

DONE, SOME_GIVEN_UP, BAD_INPUT, UNREACHABLE, CANCELLED, INTERRUPTED = 0, 1, 2, 3, 4, 130
