"""What a report draws of a run, thinned out so that its size does not grow with the number of requests."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recall_service.replay.judging.outcome_table import OutcomeTable
from recall_service.replay.judging.percentiles import nearest_rank

_CURVE_POINTS = 200
_MAX_BUCKETS = 120
_CALLS_OF_BUCKET = 25  # or so, of a short run: a p99 of fewer says little


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatencyCurve:
    """The distribution of latency: the share `at_least[i]` of calls took `seconds[i]` or longer. float64 [points]."""

    at_least: NDArray[np.float64]
    seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatencyOverTime:
    """Latency by when calls were to be sent, in buckets of equal length that hold any call. Arrays [buckets].

    middle: float64, seconds from the start of the run. p50, p99: float64, seconds. requests: int64.
    """

    bucket_seconds: float
    middle: NDArray[np.float64]
    p50: NDArray[np.float64]
    p99: NDArray[np.float64]
    requests: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunSamples:
    """What is drawn of one run; None where no call has a latency."""

    latency_curve: LatencyCurve | None
    latency_over_time: LatencyOverTime | None


def sample_run(table: OutcomeTable) -> RunSamples:
    """What to draw of the calls whose latency counts."""
    waited_for = table[table.is_waited_for]
    if not len(waited_for):
        return RunSamples(latency_curve=None, latency_over_time=None)
    return RunSamples(
        latency_curve=_latency_curve(waited_for.latency),
        latency_over_time=_latency_over_time(waited_for.intended, waited_for.latency),
    )


def _latency_curve(latency: NDArray[np.float64]) -> LatencyCurve:
    """Points that lie evenly along the logarithm of that share, from the fastest call to the slowest."""
    ordered = np.sort(latency)
    slower = np.unique(np.geomspace(1, len(ordered), _CURVE_POINTS).round().astype(np.int64))[::-1]
    return LatencyCurve(at_least=slower / len(ordered), seconds=ordered[len(ordered) - slower])


def _latency_over_time(intended: NDArray[np.float64], latency: NDArray[np.float64]) -> LatencyOverTime:
    buckets = min(_MAX_BUCKETS, max(1, len(intended) // _CALLS_OF_BUCKET))
    start, length = intended.min(), float(np.ptp(intended)) / buckets or 1.0
    bucket = np.minimum((intended - start) / length, buckets - 1).astype(np.int64)
    order = np.lexsort((latency, bucket))
    found, first, requests = np.unique(bucket[order], return_index=True, return_counts=True)
    of_bucket = np.split(latency[order], first[1:])
    return LatencyOverTime(
        bucket_seconds=length,
        middle=start + (found + 0.5) * length,
        p50=np.array([nearest_rank(ascending, 500) for ascending in of_bucket]),
        p99=np.array([nearest_rank(ascending, 990) for ascending in of_bucket]),
        requests=requests,
    )
