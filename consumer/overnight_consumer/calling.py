"""Call a method as it wants to be called, and check what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from overnight_common.facts import facts_of
from overnight_common.messages import Cause
from overnight_common.signatures import call_shape
from overnight_consumer.failures import failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from overnight_common.messages import Task

Points = np.ndarray[Any, Any] | list[Any]
Progress = Callable[..., None]


class Caller:
    """Call one method with one set of parameters.

    A function gets them at each call; a class is built with them once, here, and its optional `load(device)`
    is called. Building runs the user's code.

    Args:
        target: function or class.
        params: keyword arguments from the task.
        device: for example `cpu`.
        per_point: True to call with one point at a time; what `@method(per_point=...)` says counts more.
    """

    def __init__(
        self, target: Callable[..., Any], params: dict[str, Any], device: str, *, per_point: bool
    ) -> None:
        facts = facts_of(target)
        said = facts.per_point if facts is not None else None
        self._per_point = per_point if said is None else said
        self._device = device
        if inspect.isclass(target):
            self._call, self._params = _built(target, params, device), {}
        else:
            self._call, self._params = target, params
        self._wants = frozenset(call_shape(self._call).wants)

    def __call__(self, points: Points, task: Task, progress: Progress) -> Points:
        """Return one result for each point of a task.

        Args:
            points: array `[n, ...]` or list of n.
            task: says which points these are, and the seed.
            progress: given to a method that asks for it.

        Raises:
            TaskFailedError: cause bad_result, when the number of results is not n.
        """
        if self._per_point:
            return stacked(
                [self._one(point, index, task, progress) for index, point in _numbered(points, task)]
            )
        wanted = self._wanted_of_batch(task, progress) if self._wants else {}
        return checked(self._call(points, **self._params, **wanted), task.stop - task.start)

    def _one(self, point: object, index: int, task: Task, progress: Progress) -> object:
        return self._call(
            point, **self._params, **(self._wanted_of_point(index, task, progress) if self._wants else {})
        )

    def _wanted_of_batch(self, task: Task, progress: Progress) -> dict[str, object]:
        """Return what a batch method asks for; randomness is that of each point, whatever the batch."""
        given: dict[str, object] = {}
        indices = range(task.start, task.stop)
        if "rng" in self._wants:
            given["rng"] = [np.random.default_rng(sequence_of(task.seed, index)) for index in indices]
        if "seeds" in self._wants:
            given["seeds"] = np.array([seed_of(task.seed, index) for index in indices], dtype=np.uint64)
        if "indices" in self._wants:
            given["indices"] = np.arange(task.start, task.stop)
        return self._add_common(given, progress)

    def _wanted_of_point(self, index: int, task: Task, progress: Progress) -> dict[str, object]:
        """Return what a per-point method asks for: one generator, one seed, one index."""
        given: dict[str, object] = {}
        if "rng" in self._wants:
            given["rng"] = np.random.default_rng(sequence_of(task.seed, index))
        if "seeds" in self._wants:
            given["seeds"] = seed_of(task.seed, index)
        if "indices" in self._wants:
            given["indices"] = index
        return self._add_common(given, progress)

    def _add_common(self, given: dict[str, object], progress: Progress) -> dict[str, object]:
        if "device" in self._wants:
            given["device"] = self._device
        if "progress" in self._wants:
            given["progress"] = progress
        return given


def _built(target: Callable[..., Any], params: dict[str, Any], device: str) -> Callable[..., Any]:
    instance = target(**params)
    load = getattr(instance, "load", None)
    if callable(load):
        takes_device = bool(inspect.signature(load).parameters)
        load(device) if takes_device else load()
    if not callable(instance):
        raise TypeError(f"{target.__qualname__} has no __call__: a method class is called with each batch")
    return instance  # type: ignore[no-any-return]


def sequence_of(seed: int, index: int) -> np.random.SeedSequence:
    """Return the source of all randomness of one point: it depends on the job's seed and the index alone."""
    return np.random.SeedSequence(seed, spawn_key=(index,))


def seed_of(seed: int, index: int) -> np.uint64:
    """Return the seed of one point."""
    return sequence_of(seed, index).generate_state(1, np.uint64)[0]  # type: ignore[no-any-return]


def _numbered(points: Points, task: Task) -> Iterator[tuple[int, object]]:
    return zip(range(task.start, task.stop), points, strict=True)


def stacked(results: list[Any]) -> Points:
    """Return per-point results as one array if all are NumPy values of one dtype and shape, else as they are.

    Each point's own value is the same either way, so nothing depends on how the points were cut into tasks.
    """
    first = results[0]
    if not _is_numpy(first) or first.dtype.hasobject:
        return results
    if all(_is_numpy(each) and each.dtype == first.dtype and each.shape == first.shape for each in results):
        return np.stack(results)
    return results


def _is_numpy(value: object) -> bool:
    return type(value) is np.ndarray or isinstance(value, np.generic)


def checked(results: object, count: int) -> Points:
    """Return a batch's results; raises TaskFailedError (bad_result) unless there is one for each point."""
    if isinstance(results, list | tuple):
        returned: Sequence[Any] | np.ndarray[Any, Any] = results
    elif hasattr(results, "__array__") and not isinstance(results, np.generic):
        returned = results if type(results) is np.ndarray else np.asarray(results)
        if returned.ndim == 0:
            raise failed(
                Cause.BAD_RESULT, "BadResult", f"returned an array of no dimension for {_points(count)}"
            )
    else:
        what = "None" if results is None else f"a {type(results).__name__}"
        raise failed(
            Cause.BAD_RESULT,
            "BadResult",
            f"returned {what} for {_points(count)}; due is an array whose first length is {count}, or a list",
        )
    if len(returned) != count:
        raise failed(Cause.BAD_RESULT, "BadResult", f"returned {len(returned)} results for {_points(count)}")
    return returned  # type: ignore[return-value]


def _points(count: int) -> str:
    return f"{count} point" if count == 1 else f"{count} points"
