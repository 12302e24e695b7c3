"""Turn ranges of a job into task messages: read the points, keep to the size limits."""

from __future__ import annotations

import time

from overnight_common.brokers.base import Message
from overnight_common.datasets import DataSet, check_current
from overnight_common.errors import OvernightError
from overnight_common.messages import VERSION, DataReference, Encoded, Task, encode
from overnight_common.values import encode_values
from overnight_producer.jobs.jobspec import JobSpec

AUTO_BATCH_BYTES = 256 * 1024


class PointTooLargeError(OvernightError):
    """Say that one point alone is over the message limit."""


class TaskMaker:
    """Make the task messages of one job."""

    def __init__(self, spec: JobSpec, dataset: DataSet, reply_to: str, max_message_bytes: int) -> None:
        """Make tasks that are answered to the queue `reply_to`."""
        self._spec = spec
        self._dataset = dataset
        self._reply_to = reply_to
        self._max_message_bytes = max_message_bytes
        self._reference = DataReference(dataset.uri, len(dataset), spec.data_fingerprint)

    def make(self, start: int, stop: int, attempt: int) -> Message:
        """Return the message for the points `[start, stop)`.

        Raises:
            PointTooLargeError: it is over the message limit.
            DataUnavailableError: the points cannot be read.
        """
        message = self._message(start, stop, attempt)
        if len(message.body) > self._max_message_bytes:
            raise PointTooLargeError(
                f"points [{start}, {stop}) make a message of {len(message.body):,} bytes; the limit is "
                f"{self._max_message_bytes:,}. Give --data-by reference if all consumers see the same path, "
                "or a larger --max-message-bytes."
            )
        return message

    def cut(self, start: int, stop: int) -> tuple[int, Message]:
        """Return where a new task that begins at `start` ends (at most `stop`) and its message."""
        limit = self._max_message_bytes
        if self._spec.batch == "auto":
            limit = min(limit, AUTO_BATCH_BYTES)
        while True:
            message = self._message(start, stop, 1)
            if len(message.body) <= limit:
                return stop, message
            if stop - start == 1:
                return stop, self.make(start, stop, 1)
            # The mean size of these points says how many fit; a tenth is left for the uneven ones.
            fitting = int((stop - start) * limit / len(message.body) * 0.9)
            stop = start + max(1, min(fitting, stop - start - 1))

    def check_data(self) -> None:
        """Make sure that all points made so far are of the data set that the job was made for.

        Raises:
            DataChangedError: the file is another one now: what was made since the last check must not be sent.
        """
        if self._spec.data_by == "value":
            check_current(self._dataset, self._spec.data_fingerprint)

    def probe(self, number: int) -> Message:
        """Return a task of zero points, which a consumer answers at once."""
        at = self._spec.start
        return self._wrap(self._task(at, at, number, None), "probe")

    def _message(self, start: int, stop: int, attempt: int) -> Message:
        data: DataReference | Encoded = self._reference
        if self._spec.data_by == "value":
            data = encode_values(self._dataset.read(start, stop), stop - start)
        return self._wrap(self._task(start, stop, attempt, data), "task")

    def _task(self, start: int, stop: int, attempt: int, data: DataReference | Encoded | None) -> Task:
        spec = self._spec
        return Task(
            v=VERSION,
            job=spec.id,
            reply_to=self._reply_to,
            start=start,
            stop=stop,
            attempt=attempt,
            method=spec.method,
            fingerprint=spec.fingerprint,
            params=spec.params,
            seed=spec.seed,
            data=data,
            per_point=spec.per_point,
            time_limit_seconds=spec.time_limit_seconds,
            published_at=time.time(),
        )

    def _wrap(self, task: Task, kind: str) -> Message:
        name = f"{task.job} [{task.start}, {task.stop}) attempt {task.attempt}"
        return Message(body=encode(task), type=kind, message_id=name)
