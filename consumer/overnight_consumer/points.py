"""Get the points of a task: out of the message, or out of a data set that is kept open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from overnight_common.datasets import DataSet, check_unchanged, open_dataset
from overnight_common.errors import BadInputError, DataChangedError, DataUnavailableError, DecodeError
from overnight_common.messages import Cause, DataReference, Encoded
from overnight_common.values import decode_values
from overnight_consumer.failures import UnusableTaskError, failed

if TYPE_CHECKING:
    from overnight_common.messages import Task
    from overnight_consumer.calling import Points

_MOST_OPEN = 4


class PointSource:
    """Keep the data sets open that tasks refer to."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[DataSet, str]] = {}

    def read(self, task: Task) -> Points:
        """Return the points of a task.

        Raises:
            TaskFailedError: cause data_unavailable: missing here, or changed.
            UnusableTaskError: the message holds no points, or not as many as it says.
        """
        count = task.stop - task.start
        if isinstance(task.data, DataReference):
            return self._referred(task, task.data)
        if not isinstance(task.data, Encoded):
            raise UnusableTaskError("it carries no points")
        try:
            points = decode_values(task.data)
        except DecodeError as error:
            raise UnusableTaskError(f"its points cannot be read: {error}") from error
        if len(points) != count:
            raise UnusableTaskError(f"it carries {len(points)} points for a range of {count}")
        return points

    def _referred(self, task: Task, reference: DataReference) -> Points:
        try:
            points: Points = self._dataset(reference).read(task.start, task.stop)
        except (
            BadInputError,
            DataUnavailableError,
            DataChangedError,
            OSError,
            ValueError,
            IndexError,
        ) as error:
            self._forget(reference.uri)
            message = f"{reference.uri}: {error}"
            raise failed(Cause.DATA_UNAVAILABLE, type(error).__name__, message) from error
        if len(points) != task.stop - task.start:
            raise failed(
                Cause.DATA_UNAVAILABLE, "DataChangedError", f"{reference.uri} is shorter than the task says"
            )
        return points

    def _dataset(self, reference: DataReference) -> DataSet:
        known = self._open.get(reference.uri)
        if known is not None and known[1] == reference.fingerprint and known[0].is_current():
            return known[0]
        self._forget(reference.uri)
        dataset = open_dataset(reference.uri)
        try:
            if reference.fingerprint:
                check_unchanged(dataset, reference.fingerprint)
        except BaseException:
            dataset.close()
            raise
        while len(self._open) >= _MOST_OPEN:
            self._forget(next(iter(self._open)))
        self._open[reference.uri] = (dataset, reference.fingerprint)
        return dataset

    def _forget(self, uri: str) -> None:
        known = self._open.pop(uri, None)
        if known is not None:
            known[0].close()
