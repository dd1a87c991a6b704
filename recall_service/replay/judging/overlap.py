"""How much two ranked lists of items are alike: pure functions that know neither requests nor targets.

A list holds each item once, best first. Ranks count from 0; the k of overlap@k and hit@k counts from 1.
"""

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Matching(NamedTuple):
    """The items that two lists share, in the reference's order, by their ranks in each.

    reference_ranks, candidate_ranks: int64 [shared].
    depth: length of the longer list.
    """

    reference_ranks: NDArray[np.int64]
    candidate_ranks: NDArray[np.int64]
    depth: int


def match(reference: Sequence[str], candidate: Sequence[str]) -> Matching:
    """Which items both lists hold, and where."""
    rank_in_candidate = {item: rank for rank, item in enumerate(candidate)}
    pairs = [(rank, rank_in_candidate[item]) for rank, item in enumerate(reference) if item in rank_in_candidate]
    ranks = np.array(pairs, np.int64).reshape(-1, 2)
    return Matching(ranks[:, 0], ranks[:, 1], max(len(reference), len(candidate)))


def overlap_curve(matching: Matching) -> NDArray[np.float64]:
    """overlap@1 .. overlap@depth, float64 [depth]: the share of one list's first k items that the other's hold too.

    Where a list is shorter than k, its missing items count as not shared.
    """
    shared_from = np.maximum(matching.reference_ranks, matching.candidate_ranks)
    shared = np.bincount(shared_from, minlength=matching.depth).cumsum()
    return shared / np.arange(1, matching.depth + 1)


def rank_correlation(matching: Matching) -> float | None:
    """Kendall's tau of the shared items' order: 1 the same, -1 reversed; None with fewer than two shared items.

    A ranked list has no ties, so tau-a and tau-b are one (Kendall, A New Measure of Rank Correlation, 1938). What is
    not shared plays no part: overlap tells of that.
    """
    shared = len(matching.candidate_ranks)
    if shared < 2:
        return None
    inversions = 0
    seen: list[int] = []
    for rank in matching.candidate_ranks.tolist():
        inversions += len(seen) - bisect_right(seen, rank)
        insort(seen, rank)
    return 1 - 4 * inversions / (shared * (shared - 1))


def score_drift(
    matching: Matching, reference_scores: Sequence[float], candidate_scores: Sequence[float]
) -> NDArray[np.float64]:
    """By how much each shared item's score differs, whichever way: float64 [shared]."""
    reference = np.asarray(reference_scores, np.float64)[matching.reference_ranks]
    candidate = np.asarray(candidate_scores, np.float64)[matching.candidate_ranks]
    drift: NDArray[np.float64] = np.abs(candidate - reference)
    return drift


def only_in(items: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The items that `others` lacks, in their order: lost from reference to candidate, gained the other way round."""
    known = frozenset(others)
    return tuple(item for item in items if item not in known)


def first_hit(items: Sequence[str], wanted: Sequence[str]) -> int | None:
    """The rank of the first item that is wanted; hit@k holds when that is below k. None: no item is."""
    sought = frozenset(wanted)
    return next((rank for rank, item in enumerate(items) if item in sought), None)
