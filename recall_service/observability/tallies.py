"""Counters and histograms that cost whoever reports next to nothing: values wait, and are added up many at a time.

Thirteen values are reported of a cached answer. prometheus_client's own metrics take a lock or two at each, and look
for its bucket: 10 microseconds an answer where nothing else runs, and more where caches are cold. These take 2.
Knows nothing of what is counted.
"""

import random
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

# Adding up so many takes some 50 microseconds. A call reports a value each to a dozen tallies: were they of one length,
# they would all be added up in the same call every so often, and hold it and those behind it up for half a millisecond.
_FEWEST_WAITING, _MOST_WAITING = 384, 640


def _num_waiting() -> int:
    """How many values may wait in one tally."""
    return random.randint(_FEWEST_WAITING, _MOST_WAITING)  # noqa: S311  guards no secret


class Count:
    """One child of a counter; for use by any thread."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._most_waiting = _num_waiting()
        self._lock = Lock()  # of the total; adding to a list, and taking off its beginning, need none
        self._total = 0

    def inc(self, amount: int = 1) -> None:
        """Count `amount` more."""
        waiting = self._waiting
        waiting.append(amount)
        if len(waiting) >= self._most_waiting:
            self.read()

    def read(self) -> int:
        """How many there are by now."""
        with self._lock:
            num_values = len(self._waiting)
            self._total += sum(self._waiting[:num_values])
            del self._waiting[:num_values]
            return self._total


class Bucket(NamedTuple):
    """So many values lie in this bucket or below it. exemplar: one of its own."""

    num_values: int
    exemplar: Exemplar | None


class Buckets:
    """One child of a histogram; for use by any thread. edges: upper bounds, each in its bucket, ascending."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._waiting: list[float] = []
        self._most_waiting = _num_waiting()
        self._lock = Lock()  # of the counts and the sum
        self._counts = np.zeros(len(edges) + 1, np.int64)
        self._sum = 0.0
        self._exemplars: list[Exemplar | None] = [None] * (len(edges) + 1)

    def observe(self, value: float, exemplar: dict[str, str] | None = None) -> None:
        """Take note of a value. exemplar: labels that lead to an example of it."""
        waiting = self._waiting
        waiting.append(value)
        if len(waiting) >= self._most_waiting:
            self.read()
        if exemplar is not None:
            self._exemplars[bisect_left(self._edges, value)] = Exemplar(exemplar, value, time.time())

    def read(self) -> tuple[list[Bucket], float]:
        """The buckets by now, that of all values last, and the sum of all values."""
        with self._lock:
            num_values = len(self._waiting)
            values = np.array(self._waiting[:num_values], np.float64)
            del self._waiting[:num_values]
            self._counts += np.bincount(np.searchsorted(self._edges, values), minlength=len(self._counts))
            self._sum += float(values.sum())
            return list(map(Bucket, self._counts.cumsum().tolist(), self._exemplars)), self._sum


class Counter(Collector):
    """A family of counters by label values; its name ends in _total."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._documentation, self._label_names = name, documentation, labels
        self._children: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """The child for these label values, made when it is first asked for."""
        return self._children.setdefault(values, Count())

    def describe(self) -> Iterable[CounterMetricFamily]:
        """The family without its samples, by which a registry finds names given twice."""
        yield CounterMetricFamily(self._name, self._documentation, labels=self._label_names)

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The family as it is now."""
        for family in self.describe():
            for values, child in self._children.items():
                family.add_metric(values, child.read())
            yield family


class Histogram(Collector):
    """A family of histograms by label values. edges: as of Buckets; one more bucket is for what lies above all."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], edges: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._documentation, self._label_names = name, documentation, labels
        self._edges = edges
        self._bounds = [*map(str, map(float, edges)), "+Inf"]
        self._children: dict[tuple[str, ...], Buckets] = {}
        registry.register(self)

    def labels(self, *values: str) -> Buckets:
        """The child for these label values, made when it is first asked for."""
        return self._children.setdefault(values, Buckets(self._edges))

    def describe(self) -> Iterable[HistogramMetricFamily]:
        """The family without its samples, by which a registry finds names given twice."""
        yield HistogramMetricFamily(self._name, self._documentation, labels=self._label_names)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """The family as it is now."""
        for family in self.describe():
            for values, child in self._children.items():
                buckets, total = child.read()
                family.add_metric(values, [*map(_sample, self._bounds, buckets)], total)
            yield family


def _sample(bound: str, bucket: Bucket) -> tuple[str, float] | tuple[str, float, Exemplar]:
    """A bucket as prometheus_client takes it."""
    if bucket.exemplar is None:
        return bound, bucket.num_values
    return bound, bucket.num_values, bucket.exemplar
