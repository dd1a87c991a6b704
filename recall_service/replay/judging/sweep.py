"""Finds the knee: the highest rate that a target sustains. Knows how to ask for a run at a rate, not how it is made."""

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recall_service.errors import SettingsError
from recall_service.replay.judging.summary import Summary

LEAST_GOOD_SHARE = 0.95  # of all requests, how many have to be answered within the SLO


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One rate, in requests per second, and what its run came to."""

    rate: float
    summary: Summary
    is_sustained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Runs at ascending rates, the last one perhaps not sustained. knee: the highest rate that was; None if none."""

    slo_seconds: float
    points: tuple[SweepPoint, ...]
    knee: float | None

    @property
    def sentence(self) -> str:
        """What was found, in words."""
        slo = f"{1000 * self.slo_seconds:g} ms"
        if not self.points:
            return "no rate was tried to its end"
        if self.knee is None:
            return f"not even {self.points[0].rate:g} requests per second are sustained at an SLO of {slo}"
        if self.points[-1].is_sustained:
            return f"{self.knee:g} requests per second, the highest rate tried, are sustained at an SLO of {slo}"
        return (
            f"the knee is at {self.knee:g} requests per second: {self.points[-1].rate:g} are not sustained "
            f"at an SLO of {slo}"
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "slo_seconds": self.slo_seconds,
            "knee": self.knee,
            "sentence": self.sentence,
            "points": [
                {"rate": point.rate, "is_sustained": point.is_sustained, "summary": point.summary.to_json()}
                for point in self.points
            ],
        }


def parse_rates(text: str) -> tuple[float, ...]:
    """Ascending rates from "100,200,400", or from "100:1600:2": the first, the highest, and the factor between two.

    Raises SettingsError naming what is wrong and the remedy.
    """
    remedy = "give rates as 100,200,400 or as FIRST:HIGHEST:FACTOR, 100:1600:2, in requests per second"
    try:
        numbers = [float(part) for part in text.replace(":", ",").split(",")]
    except ValueError:
        raise SettingsError(f"sweep {text!r}: not numbers; {remedy}") from None
    if ":" not in text:
        rates = tuple(numbers)
    elif len(numbers) == 3 and "," not in text and numbers[2] > 1 and 0 < numbers[0] <= numbers[1] < math.inf:
        rates = _geometric(*numbers)
    else:
        raise SettingsError(f"sweep {text!r}: no series of rates; {remedy}, the factor above 1")
    if any(not 0 < rate < math.inf for rate in rates) or list(rates) != sorted(set(rates)):
        raise SettingsError(f"sweep {text!r}: not positive rates that ascend; {remedy}")
    return rates


async def sweep(
    run_rate: Callable[[float], Awaitable[Summary]], rates: Sequence[float], *, slo_seconds: float
) -> Sweep:
    """Run the ascending rates until one is not sustained.

    run_rate: replays at a rate and summarises with this very SLO.
    A rate is sustained when at least 95 % of its requests are answered within the SLO, and the p99 of latency is.
    """
    points: list[SweepPoint] = []
    for rate in rates:
        summary = await run_rate(rate)
        points.append(SweepPoint(rate=rate, summary=summary, is_sustained=_is_sustained(summary, slo_seconds)))
        if not points[-1].is_sustained:
            break
    knee = max((point.rate for point in points if point.is_sustained), default=None)
    return Sweep(slo_seconds=slo_seconds, points=tuple(points), knee=knee)


def _is_sustained(summary: Summary, slo_seconds: float) -> bool:
    good_share, latency = summary.overall.good_share, summary.overall.latency
    return (
        good_share is not None and good_share >= LEAST_GOOD_SHARE and latency is not None and latency.p99 <= slo_seconds
    )


def _geometric(first: float, highest: float, factor: float) -> tuple[float, ...]:
    steps = math.floor(math.log(highest / first, factor) + 1e-9)  # the highest itself, whatever rounding says
    return tuple(first * factor**step for step in range(steps + 1))
