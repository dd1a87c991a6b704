"""The tables of a report, as HTML. What is not known is a dash."""

from collections.abc import Callable, Mapping
from itertools import zip_longest

from recall_service.replay.judging.comparison import Comparison, GroupComparison, MovedItem
from recall_service.replay.judging.percentiles import Percentiles
from recall_service.replay.judging.summary import GroupSummary, Summary
from recall_service.replay.judging.sweep import Sweep
from recall_service.replay.report.page import table
from recall_service.replay.report.wording import milliseconds, number, share, shortened

_DASH = "—"


def latencies(summaries: Mapping[str, Summary]) -> str:
    """Percentiles of latency, service time and lag, of each target."""
    rows = [
        (label, name, *_percentiles(values))
        for label, summary in summaries.items()
        for name, values in (
            ("latency", summary.overall.latency),
            ("service", summary.service),
            ("lag of sending", summary.lag),
        )
    ]
    headings = ("", "", "calls", "mean", "p50", "p90", "p95", "p99", "p99.9", "max")
    return table("Percentiles", headings, rows, words=range(2))


def calls(summaries: Mapping[str, Summary]) -> str:
    """How many calls there were, how fast they were sent, and what share of them was any good."""
    rows = [
        (
            label,
            f"{summary.overall.requests:,}",
            f"{summary.overall.answered:,}",
            _or_dash(share, summary.overall.error_share),
            _or_dash(share, summary.overall.short_share),
            _or_dash(share, summary.overall.good_share),
            _or_dash(number, summary.goodput),
            _or_dash(number, summary.asked_rate),
            _or_dash(number, summary.achieved_rate),
            f"{summary.cancelled:,}",
            f"{summary.warm_up:,}",
        )
        for label, summary in summaries.items()
    ]
    shares = ("errors", "short answers", "within SLO")
    rates = ("good a second", "asked a second", "sent a second")
    return table("Calls", ("", "requests", "answered", *shares, *rates, "cancelled by us", "warm-up"), rows)


def failures(summaries: Mapping[str, Summary]) -> str:
    """Errors by code and reason, short answers by reason, answers by who gave them: how many of each target."""
    kinds: tuple[tuple[str, Callable[[GroupSummary], dict[str, int]]], ...] = (
        ("error", lambda group: group.failures),
        ("short answer", lambda group: group.short),
        ("answered by", lambda group: group.served_from),
    )
    rows = []
    for kind, read in kinds:
        found = {label: read(summary.overall) for label, summary in summaries.items()}
        names = dict.fromkeys(name for counts in found.values() for name in counts)
        rows += [(kind, name, *(f"{counts.get(name, 0):,}" for counts in found.values())) for name in names]
    return table("Errors, short answers, and who answered", ("", "", *summaries), rows, words=range(2))


def scenes(summaries: Mapping[str, Summary]) -> str:
    """What came of each scene at each target."""
    rows = [
        (label, scene, *_of_group(group))
        for label, summary in summaries.items()
        for scene, group in summary.by_scene.items()
    ]
    return table("Calls, by scene", ("", "scene", *_GROUP_HEADINGS), rows, words=range(2))


def scene_pairs(comparison: Comparison) -> str:
    """How the answers of each scene differ."""
    rows = [(scene, *_of_pairs(pairs)) for scene, pairs in comparison.by_scene.items()]
    return table("Differences, by scene", ("scene", *_PAIR_HEADINGS), rows)


def catalog_versions(summaries: Mapping[str, Summary]) -> str:
    """What each catalogue version answered."""
    rows = [
        (label, shortened(version), *_of_group(group))
        for label, summary in summaries.items()
        for version, group in summary.by_catalog_version.items()
    ]
    return table("Answers, by catalogue version", ("", "catalogue", *_GROUP_HEADINGS), rows, words=range(2))


def version_pairs(comparison: Comparison) -> str:
    """How answers differ, by the two catalogues that gave them."""
    rows = [
        (" → ".join(map(shortened, versions.split(" -> "))), *_of_pairs(pairs))
        for versions, pairs in comparison.by_versions.items()
    ]
    return table("Differences, by catalogue versions", ("reference's → target's", *_PAIR_HEADINGS), rows)


def examples(comparison: Comparison) -> str:
    """The questions whose answers differ most."""
    rows = [
        (
            f"{example.index}",
            example.scene,
            _some(example.lost, example.num_lost),
            _some(example.gained, example.num_gained),
            share(example.overlap),
            _or_dash("{:.4f}".format, example.rank_correlation),
            _or_dash(number, example.max_score_drift),
        )
        for example in comparison.worst
    ]
    headings = ("request", "scene", "lost", "gained", "overlap", "rank correlation", "score drift")
    return table("Requests by their index in the source, the least alike first", headings, rows, words=range(4))


def moved_items(comparison: Comparison) -> str:
    """Items lost and gained most often, side by side."""
    rows = [
        (*_moved(lost), *_moved(gained))
        for lost, gained in zip_longest(comparison.most_lost, comparison.most_gained, fillvalue=None)
    ]
    note = f"; counts may be too low by {comparison.count_error:,}" if comparison.count_error else ""
    side = ("lost in", "gained in")
    return table(
        f"Items lost and gained most often{note}", ("lost most", *side, "gained most", *side), rows, words=(0, 3)
    )


def sweep_points(sweep: Sweep) -> str:
    """What each rate of a sweep came to."""
    rows = [
        (
            number(point.rate),
            _or_dash(number, point.summary.achieved_rate),
            _or_dash(share, point.summary.overall.good_share),
            *_percentiles(point.summary.overall.latency)[2:],
            _or_dash(share, point.summary.overall.error_share),
            "yes" if point.is_sustained else "no",
        )
        for point in sweep.points
    ]
    percentiles = ("p50", "p90", "p95", "p99", "p99.9", "max")
    return table(
        "Rates, in requests per second", ("asked", "sent", "within SLO", *percentiles, "errors", "sustained"), rows
    )


_GROUP_HEADINGS = ("requests", "errors", "short", "p50", "p99", "within SLO", "hit@10")
_PAIR_HEADINGS = ("pairs", "identical", "overlap@10", "overlap", "rank correlation", "score drift", "lost", "gained")


def _of_group(group: GroupSummary) -> tuple[str, ...]:
    return (
        f"{group.requests:,}",
        _or_dash(share, group.error_share),
        _or_dash(share, group.short_share),
        _DASH if group.latency is None else milliseconds(group.latency.p50),
        _DASH if group.latency is None else milliseconds(group.latency.p99),
        _or_dash(share, group.good_share),
        _or_dash(share, group.hit_rate(10)),
    )


def _of_pairs(pairs: GroupComparison) -> tuple[str, ...]:
    return (
        f"{pairs.pairs:,}",
        f"{pairs.identical:,}",
        _or_dash(share, pairs.overlap_at(10)),
        _or_dash(share, pairs.overlap_whole),
        _or_dash("{:.4f}".format, pairs.rank_correlation),
        _or_dash(number, pairs.max_score_drift),
        f"{pairs.lost:,}",
        f"{pairs.gained:,}",
    )


def _percentiles(values: Percentiles | None) -> tuple[str, ...]:
    if values is None:
        return ("0", *(_DASH,) * 7)
    times = (values.mean, values.p50, values.p90, values.p95, values.p99, values.p999, values.max)
    return (f"{values.count:,}", *map(milliseconds, times))


def _some(items: tuple[str, ...], count: int) -> str:
    rest = count - len(items)
    return ", ".join(items) + (f" and {rest:,} more" if rest else "") if items else _DASH


def _moved(item: MovedItem | None) -> tuple[str, str, str]:
    return ("", "", "") if item is None else (item.item_id, f"{item.lost:,}", f"{item.gained:,}")


def _or_dash(write: Callable[[float], str], value: float | None) -> str:
    return _DASH if value is None else write(value)
