"""The report of a replay: one HTML file that shows verdicts, figures, plots and tables, and needs nothing else.

What is compared with the target is another one, the reference, or the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from recall_service.errors import ReplayError
from recall_service.replay.judging.comparison import Comparison
from recall_service.replay.judging.findings import findings
from recall_service.replay.judging.gate import Verdict
from recall_service.replay.judging.samples import RunSamples
from recall_service.replay.judging.summary import Summary
from recall_service.replay.judging.sweep import Sweep
from recall_service.replay.report import tables
from recall_service.replay.report.answer_plots import hit_rates, overlap_curves, score_drift
from recall_service.replay.report.page import (
    Tile,
    bullets,
    document,
    facts,
    figures,
    gate,
    heading,
    paragraph,
    section,
    tiles,
)
from recall_service.replay.report.plots import latency_distribution, latency_over_time, sweep_goodput, sweep_latency
from recall_service.replay.report.wording import milliseconds, number, share

LOG, REFERENCE = "the log", "the reference"  # what findings call whom the target is compared with

_OF_TIMES = (
    "Times count from the moment a call was meant to be sent, so a stall also shows in the calls that queued behind it;"
    " service time counts from the sending, and lag is what lies between. Latency and service are of answers and of"
    " calls that waited until their deadline, not of refusals. Percentiles are exact, by nearest rank: pN is the value"
    " of rank ceil(N/100 · n). Warm-up calls, and calls that the replay itself cancelled, count nowhere else."
)
_OF_ANSWERS = (
    "overlap@k is the share of the first k items that both answers hold, k up to the longer answer. Rank correlation is"
    " Kendall's tau of the items that both hold. Drift is by how much such an item's score differs. hit@k: one of the"
    " first k items is among those that the user took next."
)


def write_report(
    path: Path,
    *,
    title: str,
    summaries: Mapping[str, Summary],
    comparison: Comparison | None,
    verdicts: Sequence[Verdict],
    settings: Mapping[str, str],
    samples: Mapping[str, RunSamples],
) -> None:
    """Write the report of one run, or of two that were compared.

    summaries, samples: by what a run is called, the target's first. settings: shown as they are.
    Raises ReplayError when the file cannot be written.
    """
    reference = REFERENCE if len(summaries) > 1 else LOG
    _write(path, document(title, _body(title, summaries, comparison, reference, verdicts, settings, samples)))


def write_sweep_report(path: Path, *, title: str, sweep: Sweep, settings: Mapping[str, str]) -> None:
    """Write the report of a sweep. Raises ReplayError when the file cannot be written."""
    sentence = sweep.sentence[0].upper() + sweep.sentence[1:] + "."
    plots = [sweep_goodput(sweep), sweep_latency(sweep)] if sweep.points else []
    body = [
        heading(title, f"Rates from low to high, until one is not sustained; {len(sweep.points)} were run."),
        gate(sentence, [], passes=sweep.knee is not None),
        section("By rate", figures(plots), tables.sweep_points(sweep)),
        section("Settings", facts(settings)),
        _footer(),
    ]
    _write(path, document(title, body))


def _body(
    title: str,
    summaries: Mapping[str, Summary],
    comparison: Comparison | None,
    reference: str,
    verdicts: Sequence[Verdict],
    settings: Mapping[str, str],
    samples: Mapping[str, RunSamples],
) -> Iterator[str]:
    target = next(iter(summaries.values()))
    yield heading(title, _subtitle(target, comparison, reference))
    if verdicts:
        yield _gate(verdicts)
    yield tiles(_tiles(target, comparison))
    if comparison is not None:
        yield section(
            "What changed",
            figures(
                [overlap_curves(comparison), score_drift(comparison, reference), hit_rates(comparison, reference)],
                lead=bullets(findings(comparison, reference)),
            ),
        )
    yield section(
        "Latency",
        figures([latency_distribution(samples, target.slo_seconds), latency_over_time(samples, target.slo_seconds)]),
        tables.latencies(summaries),
    )
    yield section("How calls ended", tables.calls(summaries), tables.failures(summaries))
    yield section(
        "By scene",
        tables.scenes(summaries),
        "" if comparison is None else tables.scene_pairs(comparison),
    )
    yield section(
        "By catalogue version",
        tables.catalog_versions(summaries),
        "" if comparison is None else tables.version_pairs(comparison),
    )
    if comparison is not None:
        yield section("Where answers differ most", tables.examples(comparison), tables.moved_items(comparison))
    yield section("Settings", facts(settings))
    yield _footer()


def _subtitle(target: Summary, comparison: Comparison | None, reference: str) -> str:
    told = f"{target.overall.requests:,} requests in {number(target.duration_seconds)} s"
    if target.achieved_rate is not None:
        told += f", {number(target.achieved_rate)} a second"
    if target.warm_up:
        told += f", after {target.warm_up:,} of warm-up"
    return told + (f"; {comparison.overall.pairs:,} answers compared with {reference}" if comparison else "")


def _gate(verdicts: Sequence[Verdict]) -> str:
    failed = sum(not verdict.passes for verdict in verdicts)
    words = f"The gate fails: {failed} of {len(verdicts)} thresholds" if failed else "The gate passes"
    in_order = sorted(verdicts, key=lambda verdict: verdict.passes)
    return gate(words, [(verdict.sentence, verdict.passes) for verdict in in_order], passes=not failed)


def _tiles(target: Summary, comparison: Comparison | None) -> Iterator[Tile]:
    overall = target.overall
    if overall.latency is not None:
        yield Tile("p50 latency", milliseconds(overall.latency.p50))
        yield Tile("p99 latency", milliseconds(overall.latency.p99), f"slowest {milliseconds(overall.latency.max)}")
    if overall.good_share is not None and target.slo_seconds is not None:
        goodput = "" if target.goodput is None else f"{number(target.goodput)} a second"
        yield Tile(f"within {milliseconds(target.slo_seconds)}", share(overall.good_share), goodput)
    if overall.error_share is not None:
        yield Tile("errors", share(overall.error_share), f"{overall.requests - overall.answered:,} calls")
    if (hit_rate := overall.hit_rate(10)) is not None:
        yield Tile("hit rate@10", share(hit_rate), f"of {overall.hit_questions:,} answers")
    if comparison is not None and (overlap := comparison.overall.overlap_at(10)) is not None:
        yield Tile("overlap@10", share(overlap), f"of {comparison.overall.pairs:,} pairs")
    if comparison is not None and (drift := comparison.overall.max_score_drift) is not None:
        yield Tile("score drift", number(drift), "the greatest")


def _footer() -> str:
    return f"<footer>{paragraph(_OF_TIMES)}{paragraph(_OF_ANSWERS)}</footer>"


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ReplayError(
            f"{path}: cannot be written: {error.strerror}; make room, or give another directory"
        ) from None
