"""Let one process at a time be the service that drives the submitted jobs of a home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight_common.errors import BadInputError
from overnight_producer.jobs.lock import DrivingLock, JobBusyError, driver_of

if TYPE_CHECKING:
    from pathlib import Path


def become_server(home: Path) -> DrivingLock:
    """Become the service of `home` until the lock is closed or the process ends.

    Raises:
        BadInputError: another process is.
    """
    home.mkdir(parents=True, exist_ok=True)
    try:
        return DrivingLock(_service(home))
    except JobBusyError as error:
        raise BadInputError(f"process {error.pid} serves {home.absolute()} already; one is enough") from error


def server_of(home: Path) -> int | None:
    """Return the id of the process that serves the jobs in `home`, or None."""
    return driver_of(_service(home))


def _service(home: Path) -> Path:
    return home / "serve"
