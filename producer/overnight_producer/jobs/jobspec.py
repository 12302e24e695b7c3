"""Define what a job is: one method over one data set with one set of parameters."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Literal

from overnight_common.errors import DecodeError


def new_job_id() -> str:
    """Return a random job id of 12 characters; none of them needs quoting, and the first is a letter."""
    letters = "abcdefghijkmnpqrstuvwxyz"
    alphabet = letters + "23456789"
    return secrets.choice(letters) + "".join(secrets.choice(alphabet) for _ in range(11))


def own_queue(job_id: str) -> str:
    """Return the name of the task queue of a run that has a consumer of its own."""
    return f"run-{job_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Say what a job is to do. The job file keeps it; a changed one is written by `Transaction.set_spec`.

    Attributes:
        id: random, safe in file names, queue names and on a command line.
        method: name under which consumers serve the method.
        command: text of the command if the method is one, else None.
        fingerprint: hash of the method's code; empty until a reply pins it.
        data_uri: the data set, as it can be opened again from any folder.
        data_kind: `array`, `records`, `text`, `paths` or `range`.
        data_length: how many points the data set has.
        data_fingerprint: what the data set looked like.
        params: keyword arguments of the method.
        seed: each point's randomness derives from it and the point's index.
        start: index of the job's first point.
        stop: index after its last point.
        batch: points per task, or `auto`.
        per_point: True if the method takes one point and not a batch.
        queue: short name of the task queue.
        time_limit_seconds: per task, None for no limit.
        max_failures: points given up before the job pauses, None for no limit.
        created: when the job was made (UTC).
        source: folder that the method was found in.
        data_by: how points travel.
        broker: address without any password.
        epoch: number of the reply queue in use.
        output: where the results are exported at the end, None for nowhere.
        submitted: True if the job is for `overnight serve` to drive.
        on_finish: command that is run at the job's end, None for none.
    """

    id: str
    method: str
    command: str | None = None
    fingerprint: str = ""
    data_uri: str
    data_kind: str
    data_length: int
    data_fingerprint: str
    params: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    start: int = 0
    stop: int
    batch: int | Literal["auto"] = "auto"
    per_point: bool = False
    queue: str = "default"
    time_limit_seconds: float | None = None
    max_failures: int | None = 20
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    source: str = ""
    data_by: Literal["value", "reference"] = "value"
    broker: str = ""
    epoch: int = 1
    output: str | None = None
    submitted: bool = False
    on_finish: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= self.data_length:
            raise ValueError(
                f"[{self.start}, {self.stop}) lies outside a data set of {self.data_length} points"
            )

    @property
    def has_own_queue(self) -> bool:
        """Tell whether nobody else's tasks are in the job's queue."""
        return self.queue == own_queue(self.id)

    @property
    def points(self) -> int:
        """Return how many points the job has."""
        return self.stop - self.start

    def to_json(self) -> str:
        """Return it as JSON in plain ASCII, so that undecodable file names survive too."""
        return json.dumps(asdict(self) | {"created": self.created.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Return the spec in `text`; fields that this version does not know are ignored.

        Raises:
            DecodeError: it is no job spec.
        """
        known = {each.name for each in fields(cls)}
        try:
            given = {name: value for name, value in json.loads(text).items() if name in known}
            given["created"] = datetime.fromisoformat(given["created"])
            return cls(**given)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DecodeError(f"not a job spec: {error}") from error
