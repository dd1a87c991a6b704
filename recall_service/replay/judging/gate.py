"""A release gate: thresholds by name, and a verdict in words on each. Knows summaries and comparisons, no target."""

import difflib
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recall_service.errors import SettingsError
from recall_service.replay.judging.comparison import Comparison, GroupComparison
from recall_service.replay.judging.percentiles import PER_MILLE
from recall_service.replay.judging.summary import GroupSummary, Summary


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a release has to keep to. name: a known threshold's, as in max_p99_ms or min_overlap@10.

    Raises SettingsError when there is no such threshold, or no value of it could ever fail or pass the limit.
    """

    name: str
    limit: float

    def __post_init__(self) -> None:
        measure, _ = _measure(self.name)
        if not 0 <= self.limit <= measure.highest:
            remedy = "a number of 0 or more" if math.isinf(measure.highest) else f"0 to {measure.highest:g}"
            raise SettingsError(f"gate: {self.name} = {self.limit:g}; give {remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a threshold is kept, and that as a sentence. measured: None where there was nothing to measure."""

    threshold: Threshold
    measured: float | None
    passes: bool
    sentence: str


def read_gate(path: Path) -> tuple[Threshold, ...]:
    """The thresholds of a TOML file: `max_p99_ms = 50`, `"min_overlap@10" = 0.95`, at its top level.

    Raises SettingsError naming the file, the threshold, its value and the remedy.
    """
    try:
        limits = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"gate {path}: cannot be read: {reason}; give a readable TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f'gate {path}: not TOML: {error}; write thresholds as name = number, a name with @ as "min_overlap@10"'
        ) from None
    if not limits:
        raise SettingsError(f"gate {path}: has no threshold, so nothing could fail; write at least one")
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise SettingsError(f'gate {path}: {name} = {limit!r}; give a number, as in "min_overlap@10" = 0.95')
    try:
        return tuple(Threshold(name, float(limit)) for name, limit in limits.items())
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def parse_threshold(text: str) -> Threshold:
    """The threshold that NAME=VALUE says. Raises SettingsError when it says none."""
    name, _, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError:
        raise SettingsError(f"gate: {text!r}; give NAME=NUMBER, as in min_overlap@10=0.95") from None
    return Threshold(name.strip(), limit)


def judge(thresholds: Sequence[Threshold], summary: Summary, comparison: Comparison | None) -> tuple[Verdict, ...]:
    """One verdict for each threshold, in their order. What could not be measured fails."""
    return tuple(_judge(threshold, summary, comparison) for threshold in thresholds)


def _judge(threshold: Threshold, summary: Summary, comparison: Comparison | None) -> Verdict:
    measure, k = _measure(threshold.name)
    words = measure.words.format(k=k)
    at_least = threshold.name.startswith("min_")
    measured = measure.read(summary.overall, None if comparison is None else comparison.overall, k)
    if measured is None:
        passes = False
        found = f"{words} could not be measured, for {measure.lacking}"
    else:
        passes = measured >= threshold.limit if at_least else measured <= threshold.limit
        found = f"{words} is {_distinct(measured, threshold.limit)}{measure.unit}"
    asked = f"{'at least' if at_least else 'at most'} {threshold.limit:.12g}{measure.unit} was asked"
    return Verdict(
        threshold=threshold,
        measured=measured,
        passes=passes,
        sentence=f"{found}, {asked}: {'passes' if passes else 'fails'}",
    )


def _distinct(measured: float, limit: float) -> str:
    """With as many digits as it takes to see that it is not the limit, and at least four."""
    for digits in (4, 6, 9, 12):
        text = f"{measured:.{digits}g}"
        if measured == limit or text != f"{limit:.{digits}g}":
            return text
    return repr(measured)


class _Measure(NamedTuple):
    """What a threshold looks at: one of the run and the pairs. lacking: what there is none of when it reads None."""

    words: str
    lacking: str
    of_run: Callable[[GroupSummary, int], float | None] | None = None
    of_pairs: Callable[[GroupComparison, int], float | None] | None = None
    highest: float = 1.0
    unit: str = ""

    def read(self, run: GroupSummary, pairs: GroupComparison | None, k: int) -> float | None:
        if self.of_run is not None:
            return self.of_run(run, k)
        return None if pairs is None or self.of_pairs is None else self.of_pairs(pairs, k)


def _latency_ms(percentile: str) -> Callable[[GroupSummary, int], float | None]:
    def read(run: GroupSummary, _: int) -> float | None:
        return None if run.latency is None else 1000 * float(getattr(run.latency, percentile))

    return read


_MEASURES = {
    "min_overlap@K": _Measure("overlap@{k}", "no two answers were compared", of_pairs=GroupComparison.overlap_at),
    "min_rank_correlation": _Measure(
        "mean rank correlation", "no two answers share two items", of_pairs=lambda pairs, _: pairs.rank_correlation
    ),
    "max_score_drift": _Measure(
        "greatest score drift",
        "no two answers share an item",
        of_pairs=lambda pairs, _: pairs.max_score_drift,
        highest=math.inf,
    ),
    "min_hit_rate@K": _Measure("hit rate@{k}", "no answer's next items are known", of_run=GroupSummary.hit_rate),
    **{
        f"max_{name}_ms": _Measure(
            f"{name.replace('p999', 'p99.9')} of latency",
            "no call was answered",
            of_run=_latency_ms(name),
            highest=math.inf,
            unit=" ms",
        )
        for name in PER_MILLE
    },
    "max_error_share": _Measure("share of errors", "nothing was asked", of_run=lambda run, _: run.error_share),
    "max_short_share": _Measure(
        "share of short answers", "no call was answered", of_run=lambda run, _: run.short_share
    ),
    "min_good_share": _Measure(
        "share answered within the SLO", "no SLO was given, or nothing asked", of_run=lambda run, _: run.good_share
    ),
}


def _measure(name: str) -> tuple[_Measure, int]:
    """What the threshold of this name looks at, and its K, 0 where it has none."""
    stem, at, written = name.partition("@")
    measure = _MEASURES.get(f"{stem}@K" if at else stem)
    if measure is None:
        nearest = difflib.get_close_matches(f"{stem}@K" if at else stem, _MEASURES, n=1, cutoff=0.0)[0]
        raise SettingsError(f"gate: {name}: no such threshold; did you mean {nearest}?")
    if not at:
        return measure, 0
    if not (written.isascii() and written.isdigit() and int(written) > 0):
        raise SettingsError(f"gate: {name}: K is how many items to look at; give a whole number above 0")
    return measure, int(written)
