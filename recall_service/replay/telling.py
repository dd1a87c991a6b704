"""What a replay came to, as lines for a terminal."""

from collections.abc import Iterator, Mapping

from recall_service.replay.judging.analysis import Analysis
from recall_service.replay.judging.findings import findings
from recall_service.replay.judging.summary import Summary
from recall_service.replay.report.wording import milliseconds, number, share
from recall_service.replay.session import Recorded


def run_lines(name: str, summary: Summary) -> Iterator[str]:
    """The main figures of one run."""
    overall = summary.overall
    told = f"{name}: {overall.requests:,} requests in {number(summary.duration_seconds)} s"
    if summary.asked_rate is not None and summary.achieved_rate is not None:
        told += f", {number(summary.achieved_rate)} a second of {number(summary.asked_rate)} asked for"
    yield told
    if overall.latency is not None:
        latency = overall.latency
        named = {"p50": latency.p50, "p90": latency.p90, "p99": latency.p99, "max": latency.max}
        yield f"  latency {', '.join(f'{name} {milliseconds(value)}' for name, value in named.items())}"
    if summary.lag is not None:
        yield f"  lag of sending p99 {milliseconds(summary.lag.p99)}"
    if overall.good_share is not None and summary.slo_seconds is not None:
        yield f"  within {milliseconds(summary.slo_seconds)}: {share(overall.good_share)}"
    for failure, count in overall.failures.items():
        yield f"  {count:,} {failure}"


def analysis_lines(analysis: Analysis, reference: str) -> Iterator[str]:
    """Runs, what a comparison found, and the gate's verdicts."""
    yield from run_lines("target", analysis.summary)
    if analysis.against is not None:
        yield from run_lines("against", analysis.against)
    if analysis.comparison is not None:
        yield from findings(analysis.comparison, reference)
    yield from (verdict.sentence for verdict in analysis.verdicts)


def run_warnings(runs: Mapping[str, Recorded], max_in_flight: int) -> Iterator[str]:
    """What whoever reads the figures must know of how they came about."""
    for name, run in runs.items():
        if run.failures:
            told = f"{name}: ended early: {'; '.join(run.failures)}; {run.num_done:,} outcomes are kept"
            yield told + (f", {run.num_given_up:,} calls in flight were given up" if run.num_given_up else "")
        elif not run.num_done:
            yield f"{name}: nothing was asked: the source, or the sample of it, holds no question"
        if run.num_waited_for_room:
            yield (
                f"{name}: {run.num_waited_for_room:,} questions found {max_in_flight:,} calls in flight and waited: "
                "the loop was closed, and their lag shows; raise --concurrency to ask on regardless"
            )
