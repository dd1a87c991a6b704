"""Exact percentiles by nearest rank: the one definition that summary, gate and report share."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

PER_MILLE = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999}


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """How values spread, each percentile one of the values. Unit as that of the values; p999 is the 99.9th."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float

    @classmethod
    def of(cls, values: ArrayLike) -> Self | None:
        """Those of any number of finite values; None of no value. Takes 8 bytes a value."""
        ordered = np.sort(np.asarray(values, np.float64))
        if not len(ordered):
            return None
        ranked = {name: nearest_rank(ordered, per_mille) for name, per_mille in PER_MILLE.items()}
        return cls(count=len(ordered), mean=float(ordered.mean()), max=float(ordered[-1]), **ranked)


def nearest_rank(ordered: NDArray[np.float64], per_mille: int) -> float:
    """The least of the ascending values that at least `per_mille` thousandths of them do not exceed.

    That is the value of rank ceil(per_mille / 1000 * n), in whole numbers, so that no rounding moves it.
    """
    rank = max(1, -(-per_mille * len(ordered) // 1000))
    return float(ordered[rank - 1])
