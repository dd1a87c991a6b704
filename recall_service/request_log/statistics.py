"""What a log holds, counted record by record in memory that does not grow with it."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

from recall_service.request_log.names import SERVED_FROM, code_name
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall

MAX_NAMES = 1_000  # scenes and versions told apart; callers may send any scene
OTHER = "other"

_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
_GROWTH = 1.01  # of one bucket of latencies to the next: what a percentile may be off by


class Latencies:
    """Counts durations in buckets 1 % wide; percentiles are never too small, and at most 1 % too large."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._maximum = 0.0

    def add(self, seconds: float) -> None:
        """One more duration; below a nanosecond counts as one."""
        self._buckets[math.ceil(math.log(max(seconds, 1e-9), _GROWTH))] += 1
        self._maximum = max(self._maximum, seconds)

    def percentiles(self) -> dict[str, float]:
        """p50, p90, p99, p999 by nearest rank, and the exact maximum, in seconds; empty when nothing was added."""
        num_durations = self._buckets.total()
        if not num_durations:
            return {}
        found = {name: self._ranked(math.ceil(share / 100 * num_durations)) for name, share in _PERCENTILES.items()}
        return {**found, "max": self._maximum}

    def _ranked(self, rank: int) -> float:
        buckets = sorted(self._buckets)
        ends = list(accumulate(self._buckets[bucket] for bucket in buckets))
        return min(_GROWTH ** buckets[bisect_left(ends, rank)], self._maximum)


class LogStatistics:
    """Counts records by what they are. Beyond the first 1,000 names of a kind all count as "other", no name as none."""

    def __init__(self) -> None:
        self._num_records = 0
        self._first_ns, self._last_ns = 2**63, 0
        self._counts: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
        self._latencies = Latencies()

    def add(self, record: LoggedRecall) -> None:
        """One more record."""
        arrival_ns = record.arrival_time.ToNanoseconds()
        self._num_records += 1
        self._first_ns, self._last_ns = min(self._first_ns, arrival_ns), max(self._last_ns, arrival_ns)
        if record.status_code == 0:
            self._latencies.add(record.total_seconds)
        for kind, name_of in _KINDS.items():
            counts, name = self._counts[kind], name_of(record)
            if name:
                counts[name if name in counts or len(counts) < MAX_NAMES else OTHER] += 1

    def document(self) -> dict[str, Any]:
        """All of it as JSON values.

        records, first_arrival, last_arrival (RFC 3339), span_seconds between them, records_per_second over that span;
        by_scene, by_code, ...: name -> records, the most frequent first; latency_seconds of the answered.
        """
        span_seconds = max(0, self._last_ns - self._first_ns) / 1e9
        return {
            "records": self._num_records,
            "first_arrival": _rfc3339(self._first_ns) if self._num_records else None,
            "last_arrival": _rfc3339(self._last_ns) if self._num_records else None,
            "span_seconds": span_seconds,
            "records_per_second": self._num_records / span_seconds if span_seconds else None,
            **{kind: dict(counts.most_common()) for kind, counts in self._counts.items()},
            "latency_seconds": self._latencies.percentiles(),
        }


_KINDS: dict[str, Callable[[LoggedRecall], str]] = {
    "by_scene": lambda record: record.request.scene,
    "by_code": lambda record: code_name(record.status_code),
    "by_error_reason": lambda record: record.error_reason,
    "by_served_from": lambda record: SERVED_FROM.get(record.answer.served_from, OTHER),
    "by_bundle_version": lambda record: record.answer.bundle_version,
    "by_catalog_version": lambda record: record.answer.catalog_version,
}


def _rfc3339(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="milliseconds")
