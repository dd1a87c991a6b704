"""Compares two targets' answers as they come, question by question, and keeps only counts, means and a few examples.

Which target is the reference and which the candidate is the caller's choice; so is what came of the questions.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recall_service.replay.asked import Answered
from recall_service.replay.judging.categories import bounded
from recall_service.replay.judging.comparison import Comparison, Example, GroupComparison, MovedItem
from recall_service.replay.judging.frequent import FrequentItems
from recall_service.replay.judging.overlap import (
    first_hit,
    match,
    only_in,
    overlap_curve,
    rank_correlation,
    score_drift,
)
from recall_service.replay.judging.reservoir import Reservoir

_MAX_EXAMPLES = 20
_MAX_MOVED_ITEMS = 20
_ITEMS_OF_EXAMPLE = 3
_SCORE_SAMPLE = 2_000


class Comparing:
    """Takes in pairs of answers; its memory does not grow with their number. `seed` chooses the sample of scores."""

    def __init__(self, *, seed: int = 0) -> None:
        self._overall = _Tally()
        self._scenes: dict[str, _Tally] = {}
        self._versions: dict[str, _Tally] = {}
        self._worst: list[tuple[float, float, int, Example]] = []  # a heap, the least bad first
        self._lost, self._gained = FrequentItems(), FrequentItems()
        self._scores = Reservoir(_SCORE_SAMPLE, seed)

    def add(
        self,
        index: int,
        scene: str,
        reference: Answered | None,
        candidate: Answered | None,
        next_items: Sequence[str] = (),
    ) -> None:
        """Take in both answers to one question, None where there was none, and what the user took next."""
        tallies = [self._overall, _of(self._scenes, scene or "(none)")]
        if reference is None or candidate is None:
            for tally in tallies:
                tally.add_unpaired(reference, candidate)
            return
        tallies.append(_of(self._versions, f"{reference.catalog_version} -> {candidate.catalog_version}"))
        pair = _Pair(reference, candidate, next_items)
        for tally in tallies:
            tally.add(pair)
        self._lost.add(pair.lost)
        self._gained.add(pair.gained)
        self._scores.add(pair.scores)
        self._keep_if_bad(pair, index, scene)

    def finish(self) -> Comparison:
        """What it all came to."""
        return Comparison(
            overall=self._overall.finish(),
            by_scene={name: tally.finish() for name, tally in sorted(self._scenes.items())},
            by_versions={name: tally.finish() for name, tally in sorted(self._versions.items())},
            worst=tuple(entry[-1] for entry in sorted(self._worst, key=lambda entry: entry[:3], reverse=True)),
            most_lost=self._moved(self._lost),
            most_gained=self._moved(self._gained),
            count_error=max(self._lost.error, self._gained.error),
            score_sample=self._scores.points,
        )

    def _keep_if_bad(self, pair: "_Pair", index: int, scene: str) -> None:
        max_drift = float(pair.drift.max(initial=0.0))
        overlap = float(pair.overlap[-1])
        if overlap == 1 and pair.is_identical and not max_drift:
            return
        badness = (-overlap, max_drift, -index)
        if len(self._worst) == _MAX_EXAMPLES and badness < self._worst[0][:3]:
            return
        example = Example(
            index=index,
            scene=scene,
            overlap=overlap,
            rank_correlation=pair.rank_correlation,
            max_score_drift=max_drift if len(pair.drift) else None,
            num_lost=len(pair.lost),
            num_gained=len(pair.gained),
            lost=pair.lost[:_ITEMS_OF_EXAMPLE],
            gained=pair.gained[:_ITEMS_OF_EXAMPLE],
        )
        push = heapq.heappush if len(self._worst) < _MAX_EXAMPLES else heapq.heappushpop
        push(self._worst, (*badness, example))

    def _moved(self, counted: FrequentItems) -> tuple[MovedItem, ...]:
        items = [item for item, _ in counted.most_common(_MAX_MOVED_ITEMS)]
        return tuple(MovedItem(item, self._lost[item], self._gained[item]) for item in items)


class _Pair:
    """Two answers to one question, and all that is said of them."""

    def __init__(self, reference: Answered, candidate: Answered, next_items: Sequence[str]) -> None:
        self.reference = reference
        self.candidate = candidate
        self.next_items = next_items
        self.is_identical = reference.item_ids == candidate.item_ids
        matching = match(reference.item_ids, candidate.item_ids)
        # Two empty answers are alike: overlap@1 is 1.
        self.overlap = overlap_curve(matching) if matching.depth else np.ones(1)
        self.rank_correlation = rank_correlation(matching)
        self.drift = score_drift(matching, reference.scores, candidate.scores)
        self.lost = only_in(reference.item_ids, candidate.item_ids)
        self.gained = only_in(candidate.item_ids, reference.item_ids)
        self.scores = np.column_stack(
            [
                np.asarray(reference.scores, np.float64)[matching.reference_ranks],
                np.asarray(candidate.scores, np.float64)[matching.candidate_ranks],
            ]
        )


class _Tally:
    """Sums over pairs."""

    def __init__(self) -> None:
        self.pairs = self.identical = self.only_reference = self.only_candidate = self.neither = 0
        self.reference_items = self.lost = self.gained = self.reference_short = self.candidate_short = 0
        self.overlap = np.zeros(0)  # sum of overlap@k over the pairs, [depth]
        self.correlations, self.correlation, self.least_correlation = 0, 0.0, 1.0
        self.drifts, self.drift, self.max_drift = 0, 0.0, 0.0
        self.hit_pairs = 0
        self.reference_hits, self.candidate_hits = np.zeros(0, np.int64), np.zeros(0, np.int64)  # at each rank

    def add_unpaired(self, reference: Answered | None, candidate: Answered | None) -> None:
        self.only_reference += reference is not None
        self.only_candidate += candidate is not None
        self.neither += reference is None and candidate is None

    def add(self, pair: _Pair) -> None:
        self.overlap = _sum_of_curves(self.overlap, pair.overlap)
        self.pairs += 1
        self.identical += pair.is_identical
        self.reference_items += len(pair.reference.item_ids)
        self.lost += len(pair.lost)
        self.gained += len(pair.gained)
        self.reference_short += bool(pair.reference.short_reason)
        self.candidate_short += bool(pair.candidate.short_reason)
        if pair.rank_correlation is not None:
            self.correlations += 1
            self.correlation += pair.rank_correlation
            self.least_correlation = min(self.least_correlation, pair.rank_correlation)
        self.drifts += len(pair.drift)
        self.drift += float(pair.drift.sum())
        self.max_drift = max(self.max_drift, float(pair.drift.max(initial=0.0)))
        if pair.next_items:
            self.hit_pairs += 1
            self.reference_hits = _count_hit(self.reference_hits, pair.reference, pair.next_items)
            self.candidate_hits = _count_hit(self.candidate_hits, pair.candidate, pair.next_items)

    def finish(self) -> GroupComparison:
        return GroupComparison(
            pairs=self.pairs,
            identical=self.identical,
            only_reference=self.only_reference,
            only_candidate=self.only_candidate,
            neither=self.neither,
            overlap=tuple((self.overlap / self.pairs).tolist()) if self.pairs else (),
            rank_correlation=self.correlation / self.correlations if self.correlations else None,
            least_rank_correlation=self.least_correlation if self.correlations else None,
            max_score_drift=self.max_drift if self.drifts else None,
            mean_score_drift=self.drift / self.drifts if self.drifts else None,
            reference_items=self.reference_items,
            lost=self.lost,
            gained=self.gained,
            reference_short=self.reference_short,
            candidate_short=self.candidate_short,
            hit_pairs=self.hit_pairs,
            reference_hits=tuple(self.reference_hits.cumsum().tolist()),
            candidate_hits=tuple(self.candidate_hits.cumsum().tolist()),
        )


def _of(tallies: dict[str, _Tally], name: str) -> _Tally:
    return tallies.setdefault(bounded(name, tallies), _Tally())


def _sum_of_curves(total: NDArray[np.float64], curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """Beyond its end a curve stays at its last value, for lists end there."""
    depth = max(len(total), len(curve))
    return _extended(total, depth) + _extended(curve, depth)


def _extended(curve: NDArray[np.float64], depth: int) -> NDArray[np.float64]:
    last = curve[-1] if len(curve) else 0.0
    return np.append(curve, np.full(depth - len(curve), last)) if len(curve) < depth else curve


def _count_hit(counts: NDArray[np.int64], answer: Answered, next_items: Sequence[str]) -> NDArray[np.int64]:
    rank = first_hit(answer.item_ids, next_items)
    if rank is None:
        return counts
    if rank >= len(counts):
        counts = np.append(counts, np.zeros(rank + 1 - len(counts), np.int64))
    counts[rank] += 1
    return counts
