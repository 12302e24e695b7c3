"""Write down the tables of a job file; text only."""

from __future__ import annotations

APPLICATION_ID = 0x4F764E74  # "OvNt", so that a stranger's SQLite file is told from ours
SCHEMA_VERSION = 2

# Results never overlap, and neither do ranges: the rows that touch [start, stop) are therefore the last one
# that begins at or before `start` and those that begin inside, which an index on `start` finds at once.
TABLES = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    why TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    points_done INTEGER NOT NULL DEFAULT 0,
    points_given_up INTEGER NOT NULL DEFAULT 0,
    tasks_done INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    first_result_at REAL,
    last_result_at REAL
);
CREATE TABLE ranges (
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    charged INTEGER NOT NULL,
    half INTEGER NOT NULL,
    last_cause TEXT,
    PRIMARY KEY (start, stop)
) WITHOUT ROWID;
CREATE INDEX ranges_by_state ON ranges (state, start, stop);
CREATE TABLE results (
    start INTEGER PRIMARY KEY,
    stop INTEGER NOT NULL,
    kind TEXT,
    body BLOB,
    seconds REAL NOT NULL,
    consumer TEXT NOT NULL,
    slot INTEGER NOT NULL,
    finished_at REAL NOT NULL
);
CREATE TABLE failures (
    id INTEGER PRIMARY KEY,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    cause TEXT NOT NULL,
    type TEXT NOT NULL,
    message TEXT NOT NULL,
    traceback TEXT NOT NULL,
    stderr_tail TEXT NOT NULL,
    consumer TEXT NOT NULL,
    slot INTEGER NOT NULL,
    seconds REAL NOT NULL,
    peak_rss_bytes INTEGER NOT NULL,
    at REAL NOT NULL
);
CREATE INDEX failures_by_range ON failures (start, stop);
CREATE TABLE consumers (
    name TEXT PRIMARY KEY,
    tasks_done INTEGER NOT NULL DEFAULT 0,
    points_done INTEGER NOT NULL DEFAULT 0,
    last_seen REAL NOT NULL,
    accusations INTEGER NOT NULL DEFAULT 0,
    cause TEXT NOT NULL DEFAULT '',
    message TEXT NOT NULL DEFAULT ''
);
CREATE TABLE dropped (
    reason TEXT PRIMARY KEY,
    count INTEGER NOT NULL
);
CREATE TABLE requests (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    args TEXT NOT NULL,
    asked_at REAL NOT NULL,
    asked_by INTEGER NOT NULL,
    outcome TEXT
);
CREATE INDEX requests_pending ON requests (id) WHERE outcome IS NULL;
"""

PROGRESS = """
SELECT stop - start, points_done, points_given_up,
    stop - cursor + (SELECT COALESCE(SUM(stop - start), 0) FROM ranges WHERE state = 'waiting'),
    (SELECT COALESCE(SUM(stop - start), 0) FROM ranges WHERE state = 'published'),
    (SELECT COALESCE(SUM(stop - start), 0) FROM ranges WHERE state = 'running'),
    tasks_done, seconds, first_result_at, last_result_at, state, why
FROM job
"""

RANGE_COLUMNS = "start, stop, state, attempt, charged, half, last_cause"

FAILURE_COLUMNS = (
    "start, stop, attempt, cause, type, message, traceback, stderr_tail, consumer, slot, seconds,"
    " peak_rss_bytes, at"
)
