"""Write the golden messages. Run it once per schema version; what is committed must decode for ever.

`python tests/unit/golden/make.py` refuses to overwrite a file: a changed encoding needs a new name beside the
old one, and the old one keeps its test.
"""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np

from overnight_common.messages import Cause, DataReference, Encoded, Failure, Reply, Task, bundle, encode
from overnight_common.values import encode_values

HERE = Path(__file__).parent
SUFFIX = ".v1.bin"


def golden_values() -> dict[str, object]:
    """Return values whose encodings are kept, by the name of the file."""
    return {
        "npy-matrix": np.arange(6, dtype="<f8").reshape(2, 3) / 7,
        "npy-fortran": np.asfortranarray(np.arange(6, dtype="<i4").reshape(3, 2)),
        "npy-big-endian": np.array([1.5, -0.0], dtype=">f4"),
        "npy-structured": np.array([(1, "да")], dtype=[("величина", "<i8"), ("text", "<U2")]),
        "npy-times": np.array(["2026-01-02T03:04", "NaT"], dtype="<M8[m]"),
        "json-plain": [None, True, -7, 2**70, 1.5, -0.0, float("inf"), "да 🙂", {"a": [1, {}]}, []],
        "json-tagged": [
            b"\x00\xff",
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            10**700,
            np.float32(0.1),
            np.int64(-5),
            np.array([[1, 2]], dtype="<u2"),
            np.array(2.5),
            np.str_("text"),
            np.bytes_(b"raw"),
            "\ud83d",
            {"$bytes": "a user's own", "$$": 1},
        ],
    }


def golden_messages() -> dict[str, Task | Reply]:
    """Return messages whose encodings are kept, by the name of the file."""
    by_value = Encoded("npy", b"not looked at")
    by_reference = DataReference("/data/points.npy", 1797, "bytes=1 mtime_ns=2 content=3")
    failure = Failure(Cause.EXCEPTION, "ValueError", "no such point", "Traceback ...", "tail")
    task = Task(1, "job-1", "overnight.replies.job-1.1", 10, 20, 3, "lib:method")
    return {
        "task-least": task,
        "task-by-value": msgspec.structs.replace(task, data=by_value),
        "task-published-at": msgspec.structs.replace(task, data=by_value, published_at=1767323045.25),
        "task-by-reference": Task(
            v=1,
            job="job-1",
            reply_to="overnight.replies.job-1.1",
            start=10,
            stop=20,
            attempt=3,
            method="lib:method",
            fingerprint="abc",
            params={"depth": 3, "name": "да", "rates": [0.5, None]},
            seed=42,
            data=by_reference,
            per_point=True,
            time_limit_seconds=1.5,
        ),
        "reply-running": Reply(1, "job-1", 10, 20, 3, "running", "host:7", seconds=31.5),
        "reply-failed": Reply(1, "job-1", 10, 20, 3, "failed", "host:7", slot=2, failure=failure),
        "reply-done": Reply(
            v=1,
            job="job-1",
            start=10,
            stop=20,
            attempt=3,
            kind="done",
            consumer="host:7",
            slot=2,
            device="cpu",
            fingerprint="abc",
            started_at=1767323045.25,
            seconds=2.5,
            peak_rss_bytes=10_000_000,
            delivery_count=1,
            result=Encoded("json", b"[1]"),
            log_tail="said aloud",
        ),
    }


def golden_bundle() -> list[Reply]:
    """Return replies that travel together."""
    return [message for message in golden_messages().values() if isinstance(message, Reply)]


def main() -> None:
    """Write what is not there yet."""
    write("replies", bundle([encode(reply) for reply in golden_bundle()]))
    for name, values in golden_values().items():
        write(name, encode_values(values, len(values)).body)
    for name, message in golden_messages().items():
        write(name, encode(message))


def write(name: str, body: bytes) -> None:
    """Write one file, unless it is there."""
    path = HERE / (name + SUFFIX)
    if path.exists():
        print(f"{path.name} is there already: kept")
    else:
        path.write_bytes(body)


if __name__ == "__main__":
    main()
