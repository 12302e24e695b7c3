"""Describe figures, hold them, and write them as Prometheus wants them; only here is its client imported.

The loop's thread writes and the server's thread reads, without a lock: each figure is replaced or copied in
one step. That, and plain dictionaries instead of the client's own counters, is what makes a task's share of
it a few microseconds.
"""

from __future__ import annotations

import importlib.metadata
import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from overnight_common.brokers.base import TASKS_PREFIX, BrokerState, LossReason

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from overnight_common.brokers.base import Broker

# Runs last from a millisecond to half a day; the client's own buckets end at 10 s.
RUN_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 43200.0),
)
# Waits in a queue are coarser and longer.
WAIT_BOUNDS = (
    *(0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0),
    *(300.0, 600.0, 1800.0, 3600.0, 14400.0, 43200.0),
)
# Answers of a broker or a disk.
ANSWER_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Describe one metric.

    Attributes:
        name: in full, with its unit and, for a counter, `_total`.
        kind: as Prometheus calls it.
        help: one sentence.
        labels: names of its labels; the values of each come from a closed set.
        bounds: upper bounds of a histogram's buckets, rising, without infinity.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()


class Buckets(NamedTuple):
    """Hold a histogram at one moment: how many fell into each bucket (the last is infinity), and their sum."""

    counts: list[int]
    sum: float


class Reading(NamedTuple):
    """Hold what one metric says at one moment; label values -> figure. Without figures it is absent."""

    family: Family
    values: Mapping[Labels, float | Buckets]


class Counter:
    """Count events by label values; those in `known` begin at 0, so that the first event is seen."""

    def __init__(self, family: Family, known: Iterable[Labels] = ()) -> None:
        self._family = family
        self._values: dict[Labels, float] = dict.fromkeys(known, 0)

    def add(self, labels: Labels = (), by: float = 1) -> None:
        """Count one event, or `by` of them."""
        try:
            self._values[labels] += by
        except KeyError:
            self._values[labels] = by

    def read(self) -> Reading:
        """Return the counts so far."""
        return Reading(self._family, self._values.copy())


class Histogram:
    """Sort durations in seconds into buckets, by label values."""

    def __init__(self, family: Family, known: Iterable[Labels] = ()) -> None:
        self._family = family
        self._bounds = family.bounds
        self._values = {labels: self._empty() for labels in known}

    def _empty(self) -> list[float]:
        return [0.0] * (len(self._family.bounds) + 2)  # the buckets, infinity, and the sum

    def _cells(self, labels: Labels) -> list[float]:
        try:
            return self._values[labels]
        except KeyError:
            self._values[labels] = self._empty()
            return self._values[labels]

    def observe_alike(self, seconds: float, times: int) -> None:
        """Add one duration so many times."""
        cells = self._cells(())
        cells[bisect_left(self._bounds, seconds)] += times
        cells[-1] += seconds * times

    def observe(self, *seconds: float, labels: Labels = ()) -> None:
        """Add durations; many at once cost less than one by one."""
        cells = self._cells(labels)
        bounds = self._bounds
        for each in seconds:
            cells[bisect_left(bounds, each)] += 1
        cells[-1] += sum(seconds)

    def read(self) -> Reading:
        """Return the buckets as they are now."""
        copies = {labels: cells.copy() for labels, cells in self._values.copy().items()}
        return Reading(
            self._family,
            {labels: Buckets([int(n) for n in cells[:-1]], cells[-1]) for labels, cells in copies.items()},
        )


def one(family: Family, value: float | None) -> Reading:
    """Return the reading of a metric without labels; absent if the value is None."""
    return Reading(family, {} if value is None else {(): value})


BUILD_INFO = Family(
    "overnight_build_info", "gauge", "Always 1; what is running.", ("service", "version", "python")
)
BROKER_CONNECTED = Family("overnight_broker_connected", "gauge", "1 while the link to the broker stands.")
BROKER_BLOCKED = Family(
    "overnight_broker_blocked", "gauge", "1 while the broker takes no messages: it is out of memory or disk."
)
BROKER_LOSSES = Family(
    "overnight_broker_links_lost_total", "counter", "Lost links; each is made again.", ("reason",)
)
COMMON_FAMILIES = (BUILD_INFO, BROKER_CONNECTED, BROKER_BLOCKED, BROKER_LOSSES)


class BrokerFigures:
    """Follow the link to the broker."""

    def __init__(self) -> None:
        self._state = BrokerState.DISCONNECTED
        self._losses = Counter(BROKER_LOSSES, [(reason.value,) for reason in LossReason])

    @property
    def connected(self) -> bool:
        """Tell whether the link stands."""
        return self._state is not BrokerState.DISCONNECTED

    def follow(self, broker: Broker) -> None:
        """Take the state as it is, and every change of it."""
        self._state = broker.state
        broker.on_state(lambda state: self._changed(state, broker.loss))

    def _changed(self, state: BrokerState, loss: LossReason | None) -> None:
        if state is BrokerState.DISCONNECTED and loss is not None:
            self._losses.add((loss.value,))
        self._state = state

    def read(self) -> list[Reading]:
        """Return how the link is and how often it was lost."""
        blocked = self._state is BrokerState.BLOCKED
        return [one(BROKER_CONNECTED, self.connected), one(BROKER_BLOCKED, blocked), self._losses.read()]


@cache
def queue_label(queue: str) -> str:
    """Return the short name of a task queue; those that serve one job only are all called `run`."""
    name = queue.removeprefix(TASKS_PREFIX)
    return "run" if name.startswith("run-") else name


class Exposition(Collector):
    """Write all figures of a service as one page.

    Args:
        service: `consumer` or `producer`.
        read: returns the figures; called from the server's thread.
    """

    def __init__(self, service: str, read: Callable[[], Iterable[Reading]]) -> None:
        self._build = Reading(BUILD_INFO, {(service, _version(), platform.python_version()): 1.0})
        self._read = read
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Say nothing: without this the client would read all figures at the start."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield every metric as the client wants it."""
        for reading in (self._build, *self._read()):
            yield _metric(reading)

    def page(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that the `Accept` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _version() -> str:
    try:
        return importlib.metadata.version("overnight")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a folder of sources


def _metric(reading: Reading) -> Metric:
    family = reading.family
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in reading.values.items():
            assert isinstance(value, Buckets)
            bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
            histogram.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.sum)
        return histogram
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in reading.values.items():
        assert not isinstance(value, Buckets)
        metric.add_metric(labels, float(value))
    return metric
