"""Keep one job in one SQLite file: what it is, what was cut, every result and failure, what was asked."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from overnight_common.errors import OvernightError
from overnight_common.file_systems import refuse_network_share
from overnight_common.messages import Cause, Encoded, Failure
from overnight_producer.jobs.jobspec import JobSpec
from overnight_producer.jobs.lock import DrivingLock
from overnight_producer.jobs.records import ConsumerRow, FailureRow, JobState, Progress, Request, ResultRow
from overnight_producer.jobs.schema import (
    APPLICATION_ID,
    FAILURE_COLUMNS,
    PROGRESS,
    RANGE_COLUMNS,
    SCHEMA_VERSION,
    TABLES,
)
from overnight_producer.jobs.transaction import Transaction, range_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from overnight_producer.jobs.ranges import Range

_BUSY_SECONDS = 30.0
_PAGE_ROWS = 500


class JobFileError(OvernightError):
    """Say that a job file cannot be used: missing, foreign, damaged, too new, or the disk is full."""


class JobFile:
    """Read a job from any process, and change it in whole cycles as its driver.

    One thread at a time; every read sees the state of one commit.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._file = _identity(path)

    @classmethod
    def create(cls, path: Path, spec: JobSpec) -> JobFile:
        """Make the file of a new job and open it for driving.

        The file appears under its name only when it is whole.

        Raises:
            BadInputError: it would be on a network share.
            JobFileError: there is one already, or it cannot be written.
        """
        refuse_network_share(path)
        if path.exists():
            raise JobFileError(f"{path} exists already; resume that job or remove the file")
        new = path.with_name(path.name + ".new")
        with _explaining(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(
                    f"BEGIN; PRAGMA application_id = {APPLICATION_ID};"
                    f" PRAGMA user_version = {SCHEMA_VERSION}; {TABLES} COMMIT; PRAGMA journal_mode = WAL;"
                )
                connection.execute(
                    "INSERT INTO job (id, spec, state, why, start, stop, cursor)"
                    " VALUES (1, ?, ?, '', ?, ?, ?)",
                    (spec.to_json(), JobState.RUNNING.value, spec.start, spec.stop, spec.start),
                )
            new.rename(path)
            _sync_folder(path.parent)
        return cls.open(path, driving=True)

    @classmethod
    def open(cls, path: Path, driving: bool = False) -> JobFile:
        """Open the file of a job, to read it or (`driving`) to change it too; works while a driver writes.

        Raises:
            BadInputError: it is on a network share.
            JobFileError: it is missing, not ours, damaged, or written by another version.
        """
        refuse_network_share(path)
        if not path.is_file():
            raise JobFileError(f"there is no job file at {path}")
        with _explaining(path):
            connection = _connect(path, "rw" if driving else "ro")
            try:
                _check_ours(path, connection)
                if driving:
                    # A result is never lost, not even when the power goes.
                    connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> JobFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lock(self) -> DrivingLock:
        """Become the driver; raises JobBusyError naming the process that is."""
        return DrivingLock(self.path)

    @contextmanager
    def commit(self) -> Iterator[Transaction]:
        """Make everything done to the transaction permanent at once, or nothing if the block raises.

        When the block has ended without an error, the changes are on the disk.

        Raises:
            JobFileError: the disk is full, or the file damaged or removed; nothing was changed.
        """
        if _identity(self.path) != self._file:
            # SQLite would go on writing into a file that has no name any more, and nobody would find the results.
            raise JobFileError(
                f"{self.path} was removed or replaced while the job ran: no result can be kept there"
            )
        with _explaining(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(self._connection.execute)
                yield transaction
                transaction.flush()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    # What any process may read

    @property
    def spec(self) -> JobSpec:
        """Return the job as it is now (read from the file each time)."""
        with _explaining(self.path):
            return JobSpec.from_json(self._rows("SELECT spec FROM job")[0][0])

    @property
    def cursor(self) -> int:
        """Return the index of the first point that was not yet cut into a range."""
        return int(self._rows("SELECT cursor FROM job")[0][0])

    def progress(self) -> Progress:
        """Return how far the job is, in time that does not grow with the number of results."""
        row = self._rows(PROGRESS)[0]
        figures: tuple[Any, ...] = (*row[:10], JobState(row[10]), row[11])
        return Progress(*figures)

    def ranges(self) -> list[Range]:
        """Return the ranges that wait or are in flight, in order; given-up ones are not among them."""
        return [
            range_of(row)
            for row in self._rows(
                f"SELECT {RANGE_COLUMNS} FROM ranges WHERE state != 'given_up' ORDER BY start"  # noqa: S608 - a constant
            )
        ]

    def given_up(self) -> list[tuple[Range, FailureRow | None]]:
        """Return the given-up ranges in order, each with its last failure."""
        failure_columns = ", ".join("f." + name.strip() for name in FAILURE_COLUMNS.split(","))
        range_names = RANGE_COLUMNS.split(",")
        range_columns = ", ".join("r." + name.strip() for name in range_names)
        rows = self._rows(
            f"SELECT {range_columns}, {failure_columns} FROM ranges r LEFT JOIN failures f ON f.id ="  # noqa: S608 - constants
            " (SELECT MAX(id) FROM failures WHERE start = r.start AND stop = r.stop)"
            " WHERE r.state = 'given_up' ORDER BY r.start"
        )
        found = ((row[: len(range_names)], row[len(range_names) :]) for row in rows)
        return [(range_of(each), None if why[0] is None else _failure_of(why)) for each, why in found]

    def failures(self, limit: int = -1) -> list[FailureRow]:
        """Return the failed attempts, the latest first, at most `limit` of them (-1: all)."""
        return [
            _failure_of(row)
            for row in self._rows(
                f"SELECT {FAILURE_COLUMNS} FROM failures ORDER BY id DESC LIMIT ?",  # noqa: S608 - a constant
                (limit,),
            )
        ]

    def consumers(self) -> list[ConsumerRow]:
        """Return what each consumer did for the job, in the order of their names."""
        return [
            ConsumerRow(*row)
            for row in self._rows(
                "SELECT name, tasks_done, points_done, last_seen, accusations, cause, message"
                " FROM consumers ORDER BY name"
            )
        ]

    def dropped(self) -> dict[str, int]:
        """Return how many replies were dropped, by reason."""
        return dict(self._rows("SELECT reason, count FROM dropped ORDER BY reason"))

    def results(self) -> Iterator[ResultRow]:
        """Yield the results in the order of the points, without holding them all in memory.

        Works while the driver writes: it reads page by page, so that the file can be tidied in between.
        """
        position = -1
        with _explaining(self.path), closing(_connect(self.path, "ro")) as connection:
            while True:
                rows = connection.execute(
                    "SELECT start, stop, kind, body, seconds, consumer, slot, finished_at FROM results"
                    " WHERE start > ? ORDER BY start LIMIT ?",
                    (position, _PAGE_ROWS),
                )
                before = position
                for start, stop, kind, body, *rest in rows:
                    yield ResultRow(start, stop, None if kind is None else Encoded(kind, body), *rest)
                    position = start
                if position == before:
                    return

    # Requests

    def request(self, kind: str, args: dict[str, Any] | None = None) -> int:
        """Ask the driver for something, from any process; return the request's number."""
        with _explaining(self.path), closing(_connect(self.path, "rw")) as connection:
            number = connection.execute(
                "INSERT INTO requests (kind, args, asked_at, asked_by) VALUES (?, ?, ?, ?)",
                (kind, json.dumps(args or {}), time.time(), os.getpid()),
            ).lastrowid
        assert number is not None
        return number

    def requests_pending(self) -> list[Request]:
        """Return what was asked and not yet answered, the oldest first."""
        return self._requests("WHERE outcome IS NULL ORDER BY id", ())

    def find_request(self, request_id: int) -> Request | None:
        """Return a request with its outcome, or None if there is none of this number."""
        return next(iter(self._requests("WHERE id = ?", (request_id,))), None)

    def _requests(self, where: str, values: Sequence[Any]) -> list[Request]:
        rows = self._rows(
            f"SELECT id, kind, args, asked_at, asked_by, outcome FROM requests {where}",  # noqa: S608 - constants
            values,
        )
        return [Request(row[0], row[1], json.loads(row[2]), *row[3:]) for row in rows]

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with _explaining(self.path):
            return self._connection.execute(statement, values).fetchall()


def _failure_of(row: Sequence[Any]) -> FailureRow:
    start, stop, attempt, cause, kind, message, traceback, stderr_tail, *rest = row
    failure = Failure(Cause(cause), kind, message, traceback, stderr_tail)
    return FailureRow(start, stop, attempt, failure, *rest)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(
        uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def _check_ours(path: Path, connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise JobFileError(f"{path} is not a job file of Overnight")
    if version > SCHEMA_VERSION:
        raise JobFileError(
            f"{path} was written by a newer Overnight (file version {version}, this one reads up to"
            f" {SCHEMA_VERSION}): update Overnight here"
        )
    if version < SCHEMA_VERSION:
        raise JobFileError(
            f"{path} was written by an older Overnight (file version {version}, this one writes"
            f" {SCHEMA_VERSION}): finish and export the job with that one, or start it anew with this one"
        )
    if connection.execute("SELECT COUNT(*) FROM job").fetchone() != (1,):
        raise JobFileError(f"{path} is damaged: it holds no job")


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise JobFileError(f"{path}: {_advice(error)}") from error
    except OSError as error:
        raise JobFileError(f"{path}: {error.strerror or error}; look at the folder and its rights") from error


def _advice(error: sqlite3.Error) -> str:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return "the disk is full; make room and start the same command again, nothing is lost"
        case sqlite3.SQLITE_NOTADB:
            return "this is not a job file of Overnight (or its beginning was overwritten)"
        case sqlite3.SQLITE_CORRUPT:
            return f"the file is damaged ({error}); restore a copy, or remove it to begin again"
        case sqlite3.SQLITE_BUSY:
            return f"another process has kept it locked for {_BUSY_SECONDS:.0f} s ({error})"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return f"it cannot be opened or written ({error}); look at the rights of the file and its folder"
    return str(error)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells one file from another under the same name; None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called in each cycle; this is the quick way
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
