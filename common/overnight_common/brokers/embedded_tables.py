"""Hold the tables of the embedded broker's file, and what is done with them inside one transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from overnight_common.brokers.base import REPLIES_PREFIX, Depth
from overnight_common.brokers.owners import Owner
from overnight_common.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

APPLICATION_ID = 0x4F4E4254  # "ONBT", so that a stranger's database is not taken for ours
SCHEMA_VERSION = 1
UNUSED_SECONDS = 14 * 24 * 3600.0

# `messages.owner` is NULL while a message is ready. Ids are never used twice (AUTOINCREMENT): an ack that
# comes too late must not meet a newer message. The body is last: to look at a row does not read it.
_CREATE = (
    """CREATE TABLE queues (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, used_at REAL NOT NULL)""",
    """CREATE TABLE owners (
        id INTEGER PRIMARY KEY AUTOINCREMENT, boot TEXT NOT NULL, namespace TEXT NOT NULL,
        pid INTEGER NOT NULL, started TEXT NOT NULL, beat INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE subscriptions (
        id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, owner INTEGER NOT NULL)""",
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, owner INTEGER,
        delivery_count INTEGER NOT NULL DEFAULT 0, properties BLOB NOT NULL, body BLOB NOT NULL)""",
    "CREATE INDEX messages_by_owner ON messages (queue, owner)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_TAKE = """UPDATE messages SET owner = ? WHERE id IN
    (SELECT id FROM messages WHERE queue = ? AND owner IS NULL ORDER BY id LIMIT ?)
    RETURNING id, delivery_count, properties, body"""
# The list of queues lets the one index serve here too.
_RETURN_MESSAGES = """UPDATE messages SET owner = NULL, delivery_count = delivery_count + ?
    WHERE queue IN (SELECT id FROM queues) AND owner = ?"""
_UNUSED_QUEUES = """SELECT id FROM queues WHERE substr(name, 1, ?) = ? AND used_at < ?
    AND id NOT IN (SELECT queue FROM subscriptions)"""
_DECLARE = """INSERT INTO queues (name, used_at) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET used_at = excluded.used_at"""
_TOUCH_QUEUES = """UPDATE queues SET used_at = ?
    WHERE id IN (SELECT queue FROM subscriptions WHERE owner = ?)"""

Row = tuple[int, int, bytes, bytes]  # message id, delivery count, properties, body


class Database(Protocol):
    """Name what is needed of a connection here."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Any:
        """Run one statement and return its cursor."""

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        """Run one statement for each set of parameters."""


def prepare(db: Database, path: str) -> None:
    """Make the tables in an empty file, and clear away queues long unused.

    Raises:
        BrokerError: the file is not ours, or of another version.
    """
    if _is_empty(db):
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise BrokerError(
                f"{path} is on a file system that several processes cannot share; use a local disk"
            )
        db.execute("BEGIN IMMEDIATE")
        if _is_empty(db):  # else another process was first
            for statement in _CREATE:
                db.execute(statement)
        db.execute("COMMIT")
    if db.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise BrokerError(f"{path} is not a queue file of Overnight; move it away, or choose another folder")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise BrokerError(
            f"{path} has version {version} and this Overnight needs version {SCHEMA_VERSION}; "
            "let the jobs end with the Overnight that made it, or move it away and `overnight resume` them"
        )
    db.execute("BEGIN IMMEDIATE")
    delete_unused_queues(db, time.time())
    db.execute("COMMIT")


def _is_empty(db: Database) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def find_queue(db: Database, name: str) -> int | None:
    """Return the id of a queue; a queue deleted and declared again has another."""
    try:
        row = db.execute("SELECT id FROM queues WHERE name = ?", (name,)).fetchone()
    except UnicodeEncodeError:
        return None  # no text, so nobody can have declared it
    return row[0] if row else None


def declare(db: Database, name: str, now: float) -> None:
    """Make sure that a queue exists, and note that it was used at `now` (UTC, seconds since 1970)."""
    db.execute(_DECLARE, (name, now))


def delete_queue(db: Database, queue: int) -> None:
    """Delete a queue with all it holds."""
    db.execute("DELETE FROM messages WHERE queue = ?", (queue,))
    db.execute("DELETE FROM subscriptions WHERE queue = ?", (queue,))
    db.execute("DELETE FROM queues WHERE id = ?", (queue,))


def delete_unused_queues(db: Database, now: float) -> None:
    """Delete the reply queues that nobody has read or declared for 14 days."""
    prefix = REPLIES_PREFIX
    for (queue,) in db.execute(_UNUSED_QUEUES, (len(prefix), prefix, now - UNUSED_SECONDS)).fetchall():
        delete_queue(db, queue)


def count(db: Database, name: str) -> Depth | None:
    """Return how many messages and subscriptions a queue has, or None if there is no such queue."""
    queue = find_queue(db, name)
    if queue is None:
        return None
    ready = "SELECT count(*) FROM messages WHERE queue = ? AND owner IS NULL"
    unacked = "SELECT count(*) FROM messages WHERE queue = ? AND owner > 0"
    consumers = "SELECT count(*) FROM subscriptions WHERE queue = ?"
    return Depth(
        *(db.execute(statement, (queue,)).fetchone()[0] for statement in (ready, unacked, consumers))
    )


def publish(db: Database, rows: Iterable[tuple[int, bytes, bytes]]) -> None:
    """Append messages, each a queue's id, properties and body."""
    db.executemany("INSERT INTO messages (queue, properties, body) VALUES (?, ?, ?)", rows)


def any_ready(db: Database, queue: int) -> bool:
    """Tell whether a queue has a message to take."""
    statement = "SELECT 1 FROM messages WHERE queue = ? AND owner IS NULL LIMIT 1"
    return db.execute(statement, (queue,)).fetchone() is not None


def take(db: Database, queue: int, owner: int, room: int) -> list[Row]:
    """Give up to `room` of the oldest ready messages to an owner."""
    rows: list[Row] = db.execute(_TAKE, (owner, queue, room)).fetchall()
    rows.sort()  # RETURNING promises no order; ids are unique, so bodies are never compared
    return rows


def ack(db: Database, messages: Iterable[int], owner: int | None) -> None:
    """Delete those of the messages that are still the owner's."""
    db.executemany(
        "DELETE FROM messages WHERE id = ? AND owner = ?", [(message, owner) for message in messages]
    )


def hand_back(db: Database, messages: Iterable[int], owner: int | None) -> None:
    """Make those of the messages that are still the owner's ready again, at their old place."""
    statement = "UPDATE messages SET owner = NULL WHERE id = ? AND owner = ?"
    db.executemany(statement, [(message, owner) for message in messages])


def subscribe(db: Database, queue: int, owner: int, now: float) -> int:
    """Note a subscription and return its row."""
    db.execute("UPDATE queues SET used_at = ? WHERE id = ?", (now, queue))
    row: int = db.execute("INSERT INTO subscriptions (queue, owner) VALUES (?, ?)", (queue, owner)).lastrowid
    return row


def unsubscribe(db: Database, row: int, now: float) -> None:
    """Forget a subscription."""
    db.execute(
        "UPDATE queues SET used_at = ? WHERE id = (SELECT queue FROM subscriptions WHERE id = ?)", (now, row)
    )
    db.execute("DELETE FROM subscriptions WHERE id = ?", (row,))


def add_owner(db: Database, owner: Owner) -> int:
    """Note a process that is going to hold messages, and return its row."""
    statement = "INSERT INTO owners (boot, namespace, pid, started) VALUES (?, ?, ?, ?)"
    row: int = db.execute(statement, (owner.boot, owner.namespace, owner.pid, owner.started)).lastrowid
    return row


def owners(db: Database) -> list[tuple[int, int, Owner]]:
    """Return row, beat and identity of every owner."""
    rows = db.execute("SELECT id, beat, boot, namespace, pid, started FROM owners")
    return [(row, beat, Owner(*identity)) for row, beat, *identity in rows]


def owner_exists(db: Database, owner: int) -> bool:
    """Tell whether nobody has dropped the owner."""
    return db.execute("SELECT 1 FROM owners WHERE id = ?", (owner,)).fetchone() is not None


def beat(db: Database, owner: int) -> bool:
    """Renew an owner's lease; return False if somebody has dropped the owner."""
    renewed: int = db.execute("UPDATE owners SET beat = beat + 1 WHERE id = ?", (owner,)).rowcount
    return renewed == 1


def drop_owner(db: Database, owner: int, last_beat: int | None, *, failed: bool, now: float) -> None:
    """Return all that an owner holds, unless it has renewed its lease since `last_beat`.

    `failed` tells whether that counts as a failed delivery.
    """
    statement = "DELETE FROM owners WHERE id = ? AND beat = coalesce(?, beat)"
    if db.execute(statement, (owner, last_beat)).rowcount == 1:
        db.execute(_RETURN_MESSAGES, (int(failed), owner))
        db.execute(_TOUCH_QUEUES, (now, owner))
        db.execute("DELETE FROM subscriptions WHERE owner = ?", (owner,))
