"""Pictures of how fast a target is: latency's distribution and course, and a sweep; of samples thinned before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recall_service.replay.judging.samples import LatencyCurve, RunSamples
from recall_service.replay.judging.sweep import Sweep
from recall_service.replay.report.svg import Axis, Series, chart, linear_axis, log_axis
from recall_service.replay.report.wording import milliseconds, number

_LEAST_SECONDS = 1e-5  # a logarithm needs something above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """legend: style of the line -> what it shows."""

    title: str
    remark: str
    legend: dict[str, str]
    svg: str


def style(place: int) -> str:
    """The class name of the colour that the page has for the first, second, ... series."""
    return f"series-{place}"


def latency_distribution(samples: Mapping[str, RunSamples], slo_seconds: float | None) -> Plot | None:
    """Percentiles of latency, the far end drawn as wide as the middle; None when no run has a latency."""
    curves = {label: run.latency_curve for label, run in samples.items() if run.latency_curve is not None}
    if not curves:
        return None
    return Plot(
        title="Latency distribution",
        remark="From the intended moment of sending. Every further nine is as wide as the one before.",
        legend={style(place): label for place, label in enumerate(curves)},
        svg=chart(
            description="Latency by percentile. " + " ".join(_told(label, curve) for label, curve in curves.items()),
            x=_percentile_axis(min(curve.at_least.min() for curve in curves.values())),
            y=_latency_axis([curve.seconds for curve in curves.values()], slo_seconds),
            series=[
                Series(curve.at_least, _positive(curve.seconds), style(place))
                for place, curve in enumerate(curves.values())
            ],
            limits=_slo(slo_seconds),
        ),
    )


def latency_over_time(samples: Mapping[str, RunSamples], slo_seconds: float | None) -> Plot | None:
    """p50 and p99 of latency along the run; None when no run has a latency."""
    runs = {label: run.latency_over_time for label, run in samples.items() if run.latency_over_time is not None}
    if not runs:
        return None
    bucket = max(run.bucket_seconds for run in runs.values())
    start = min(float(run.middle.min()) for run in runs.values())
    end = max(float(run.middle.max()) for run in runs.values())
    worst = max(float(run.p99.max()) for run in runs.values())
    series, legend = [], {}
    for place, (label, run) in enumerate(runs.items()):
        for seconds, name, weight in ((run.p99, "p99", "strong"), (run.p50, "p50", "faint")):
            series.append(Series(run.middle, _positive(seconds), f"{style(place)} {weight}"))
            legend[f"{style(place)} {weight}"] = f"{label} {name}"
    return Plot(
        title="Latency over time",
        remark=f"By the intended moment of sending, in steps of {number(bucket)} s.",
        legend=legend,
        svg=chart(
            description=f"p50 and p99 of latency from {number(start)} s to {number(end)} s of the run; "
            f"the highest p99 of a step is {milliseconds(worst)}.",
            x=linear_axis("seconds of the run", min(start, 0.0), end, number),
            y=_latency_axis([run.p50 for run in runs.values()] + [run.p99 for run in runs.values()], slo_seconds),
            series=series,
            limits=_slo(slo_seconds),
        ),
    )


def sweep_goodput(sweep: Sweep) -> Plot:
    """Answers within the SLO over the asked rate."""
    rates = [point.rate for point in sweep.points]
    goodput = [point.rate * (point.summary.overall.good_share or 0.0) for point in sweep.points]
    return Plot(
        title="Goodput",
        remark="Answers within the SLO, in requests per second, by the rate asked. The thin line is all of them.",
        legend={},
        svg=chart(
            description="; ".join(
                f"{number(good)} of {number(rate)}" for good, rate in zip(goodput, rates, strict=True)
            ),
            x=linear_axis("asked, requests per second", 0, max(rates), number),
            y=linear_axis("answered within the SLO", 0, max(rates), number),
            series=[
                Series([0, max(rates)], [0, max(rates)], "even"),
                Series(rates, goodput, style(0)),
                Series(rates, goodput, f"{style(0)} large", is_dots=True),
            ],
        ),
    )


def sweep_latency(sweep: Sweep) -> Plot | None:
    """p50 and p99 over the asked rate; None when no run has a latency."""
    found = [(point.rate, point.summary.overall.latency) for point in sweep.points]
    measured = [(rate, latency) for rate, latency in found if latency is not None]
    if not measured:
        return None
    rates = [rate for rate, _ in measured]
    p50, p99 = np.array([one.p50 for _, one in measured]), np.array([one.p99 for _, one in measured])
    return Plot(
        title="Latency by rate",
        remark="From the intended moment of sending.",
        legend={f"{style(0)} strong": "p99", f"{style(0)} faint": "p50"},
        svg=chart(
            description="; ".join(f"p99 {milliseconds(one.p99)} at {number(rate)}" for rate, one in measured),
            x=linear_axis("asked, requests per second", 0, max(rates), number),
            y=_latency_axis([p50, p99], sweep.slo_seconds),
            series=[
                series
                for values, weight in ((p99, "strong"), (p50, "faint"))
                for series in (
                    Series(rates, _positive(values), f"{style(0)} {weight}"),
                    Series(rates, _positive(values), f"{style(0)} large", is_dots=True),
                )
            ],
            limits=_slo(sweep.slo_seconds),
        ),
    )


def _told(label: str, curve: LatencyCurve) -> str:
    return f"{label}: from {milliseconds(curve.seconds[0])} to {milliseconds(curve.seconds[-1])}."


def _percentile_axis(least: float) -> Axis:
    """Percentiles by the share of calls at or above them, on a logarithm: from all calls to the single slowest."""
    nines = np.arange(1, max(2, int(-np.log10(least)) + 1))
    ticks = [(1.0, "0"), (0.5, "50"), *((10.0**-place, f"{100 - 100 * 10.0**-place:.10g}") for place in nines)]
    return Axis("percentile", 1.0, min(least, 0.1), tuple(ticks), np.log10)


def _latency_axis(seconds: Iterable[NDArray[np.float64]], slo_seconds: float | None) -> Axis:
    values = np.concatenate([*seconds, [] if slo_seconds is None else [slo_seconds]])
    return log_axis("latency", float(_positive(values).min()), float(_positive(values).max()), milliseconds)


def _positive(seconds: ArrayLike) -> NDArray[np.float64]:
    return np.maximum(np.asarray(seconds, np.float64), _LEAST_SECONDS)


def _slo(slo_seconds: float | None) -> list[tuple[float, str]]:
    return [] if slo_seconds is None else [(max(slo_seconds, _LEAST_SECONDS), f"SLO {milliseconds(slo_seconds)}")]
