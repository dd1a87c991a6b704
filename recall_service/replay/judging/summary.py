"""What one run of a replay came to: counts, rates, percentiles, failures; whole, by scene and by catalogue version."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recall_service.replay.judging.outcome_table import NOT_KNOWN, OutcomeTable, OutcomeTableBuilder
from recall_service.replay.judging.percentiles import Percentiles
from recall_service.replay.outcome import Outcome

CUTOFFS = (1, 5, 10, 20, 50, 100, 200)  # the k of overlap@k and hit@k that tables show


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """What came of some requests.

    latency: of answers and of calls that waited until their deadline; None when there is neither.
    failures: "CODE reason" -> how many. short: reason -> how many answers. served_from: who -> how many answers.
    good: answers within the SLO; None without one.
    hits: for k = 1, 2, ..., how many of `hit_questions` answers hold an item that the user took next among their first
        k; beyond its end it stays as it is. hit_questions: answers to questions whose next items are known.
    """

    requests: int
    answered: int
    latency: Percentiles | None
    good: int | None
    failures: dict[str, int]
    short: dict[str, int]
    served_from: dict[str, int]
    hit_questions: int
    hits: tuple[int, ...]

    @property
    def error_share(self) -> float | None:
        """Of all requests, those without an answer; None without a request."""
        return (self.requests - self.answered) / self.requests if self.requests else None

    @property
    def short_share(self) -> float | None:
        """Of all answers, those with fewer items than asked for; None without an answer."""
        return sum(self.short.values()) / self.answered if self.answered else None

    @property
    def good_share(self) -> float | None:
        """Of all requests, those answered within the SLO; None without an SLO or a request."""
        return self.good / self.requests if self.good is not None and self.requests else None

    def hit_rate(self, k: int) -> float | None:
        """hit@k; None when no answer's next items are known."""
        if not self.hit_questions:
            return None
        return self.hits[min(k, len(self.hits)) - 1] / self.hit_questions if self.hits else 0.0

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values, hits as the rates at a few k."""
        document = asdict(self)
        del document["hits"]
        rates = {str(k): self.hit_rate(k) for k in CUTOFFS} if self.hit_questions else {}
        shares = {name: getattr(self, name) for name in ("error_share", "short_share", "good_share")}
        return document | shares | {"hit_rate": rates}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one run came to. Warm-up and calls that the replay itself cancelled are in their counts and nowhere else.

    duration_seconds: from the first intended sending to the last end.
    asked_rate, achieved_rate: requests per second as they were to be sent, and as they were; None for fewer than two,
        or all at once. goodput: answers within the SLO per second of the duration; None without an SLO.
    service: from the sending to the end, of the same calls as latency. lag: how late calls were sent, of all.
    by_catalog_version: of answers alone, for only they name one.
    """

    warm_up: int
    cancelled: int
    duration_seconds: float
    asked_rate: float | None
    achieved_rate: float | None
    slo_seconds: float | None
    goodput: float | None
    service: Percentiles | None
    lag: Percentiles | None
    overall: GroupSummary
    by_scene: dict[str, GroupSummary]
    by_catalog_version: dict[str, GroupSummary]

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return asdict(self) | {
            "overall": self.overall.to_json(),
            "by_scene": {name: group.to_json() for name, group in self.by_scene.items()},
            "by_catalog_version": {name: group.to_json() for name, group in self.by_catalog_version.items()},
        }


def summarise(outcomes: Iterable[Outcome], *, slo_seconds: float | None) -> Summary:
    """The summary of these outcomes, which are taken one at a time; 40 bytes of each are kept."""
    table = OutcomeTableBuilder()
    for outcome in outcomes:
        table.add(outcome)
    return summarise_table(table, slo_seconds=slo_seconds)


def summarise_table(builder: OutcomeTableBuilder, *, slo_seconds: float | None) -> Summary:
    """The summary of all outcomes that were added to a table."""
    table = builder.build()
    waited_for = table[table.is_waited_for]
    duration = float(table.done.max() - table.intended.min()) if len(table) else 0.0
    overall = _summarise_group(table, slo_seconds)
    return Summary(
        warm_up=builder.warm_up,
        cancelled=builder.cancelled,
        duration_seconds=duration,
        asked_rate=_rate(table.intended),
        achieved_rate=_rate(table.sent),
        slo_seconds=slo_seconds,
        goodput=overall.good / duration if overall.good is not None and duration else None,
        service=Percentiles.of(waited_for.done - waited_for.sent),
        lag=Percentiles.of(table.sent - table.intended),
        overall=overall,
        by_scene={
            scene or "(none)": _summarise_group(table[table.scene.equals(scene)], slo_seconds)
            for scene in sorted(table.scene.names)
        },
        by_catalog_version={
            version: _summarise_group(table[table.catalog_version.equals(version)], slo_seconds)
            for version in table.catalog_version.counts()
        },
    )


def _summarise_group(table: OutcomeTable, slo_seconds: float | None) -> GroupSummary:
    answered = table[table.is_answered]
    first_hit = table.first_hit[table.first_hit != NOT_KNOWN]
    return GroupSummary(
        requests=len(table),
        answered=len(answered),
        latency=Percentiles.of(table.latency[table.is_waited_for]),
        good=None if slo_seconds is None else int(np.count_nonzero(answered.latency <= slo_seconds)),
        failures=table.failure.counts(),
        short=table.short_reason.counts(),
        served_from=table.served_from.counts(),
        hit_questions=len(first_hit),
        hits=tuple(np.bincount(first_hit[first_hit >= 0]).cumsum().tolist()),
    )


def _rate(moments: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    """Events per second: their number less one over the time from the first to the last."""
    span = float(np.ptp(moments)) if len(moments) > 1 else 0.0
    return (len(moments) - 1) / span if span else None
