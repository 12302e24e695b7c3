"""Hold the lock that makes one process at a time the driver of a job."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from overnight_common.errors import OvernightError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class JobBusyError(OvernightError):
    """Say that another process drives the job.

    Attributes:
        pid: its process id, None if it could not be read.
    """

    def __init__(self, path: Path, pid: int | None) -> None:
        who = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{path} is being driven by {who}; watch it with `overnight watch`, or stop that process first"
        )
        self.pid = pid


class DrivingLock:
    """Keep a job for this process until it is closed or the process ends, however it ends."""

    def __init__(self, job_path: Path) -> None:
        """Take the lock.

        Raises:
            JobBusyError: another process, or another lock of this one, has it.
            OvernightError: there can be no lock.
        """
        self.path = job_path.with_name(job_path.name + ".lock")
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OvernightError(
                f"{self.path} cannot be made: {error.strerror}; look at the folder, its rights and its disk"
            ) from error
        if not _locked(self._fd):
            owner = _pid_in(self._fd)
            os.close(self._fd)
            raise JobBusyError(job_path, owner)
        # The file is never deleted: a second driver could then lock a file that no longer has a name.
        os.ftruncate(self._fd, 0)
        with suppress(OSError):  # on a full disk nobody can read who we are; locked it is all the same
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let go of the job; does nothing the second time."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> DrivingLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def driver_of(job_path: Path) -> int | None:
    """Return the id of the process that drives the job now, or None (0 if it has not said who it is)."""
    try:
        fd = os.open(job_path.with_name(job_path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # A shared lock is refused only while a driver holds the exclusive one.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(fd) or 0
    else:
        return None
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    # Somebody who merely asks `driver_of` holds a shared lock for an instant: not worth a refusal.
    for wait_seconds in (0.02, 0.04, 0.08, None):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait_seconds is not None:
                time.sleep(wait_seconds)
        else:
            return True
    return False


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None
