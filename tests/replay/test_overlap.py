"""Overlap, rank correlation, drift and hits against slow and obvious references, for any two lists."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.replay.judging.overlap import (
    first_hit,
    match,
    only_in,
    overlap_curve,
    rank_correlation,
    score_drift,
)

LISTS = st.lists(st.sampled_from("abcdefghijkl"), unique=True, max_size=12)


@given(LISTS, LISTS)
def test_overlap_is_the_share_of_the_first_k_that_both_hold(reference: list[str], candidate: list[str]) -> None:
    depth = max(len(reference), len(candidate))
    expected = [len(set(reference[:k]) & set(candidate[:k])) / k for k in range(1, depth + 1)]
    assert overlap_curve(match(reference, candidate)).tolist() == pytest.approx(expected)


@given(LISTS, LISTS)
def test_overlap_is_the_same_both_ways(reference: list[str], candidate: list[str]) -> None:
    forth, back = overlap_curve(match(reference, candidate)), overlap_curve(match(candidate, reference))
    assert np.array_equal(forth, back)


@given(LISTS, LISTS)
def test_rank_correlation_counts_pairs_in_the_same_order(reference: list[str], candidate: list[str]) -> None:
    shared = [item for item in reference if item in candidate]
    signs = [1 if candidate.index(one) < candidate.index(other) else -1 for one, other in combinations(shared, 2)]
    tau = rank_correlation(match(reference, candidate))
    assert tau == (pytest.approx(sum(signs) / len(signs)) if signs else None)


@given(LISTS.filter(lambda items: len(items) > 1))
def test_equal_lists_agree_wholly_and_reversed_ones_not_at_all(items: list[str]) -> None:
    assert overlap_curve(match(items, items)).tolist() == [1.0] * len(items)
    assert rank_correlation(match(items, items)) == 1
    assert rank_correlation(match(items, items[::-1])) == -1


@given(LISTS, LISTS)
def test_what_is_lost_and_gained_turns_one_list_into_the_other(reference: list[str], candidate: list[str]) -> None:
    lost, gained = only_in(reference, candidate), only_in(candidate, reference)
    assert (set(reference) - set(lost)) | set(gained) == set(candidate)
    assert list(lost) == [item for item in reference if item not in candidate]


@given(LISTS, LISTS)
def test_drift_is_of_shared_items_alone(reference: list[str], candidate: list[str]) -> None:
    old = {item: -float(rank) for rank, item in enumerate(reference)}
    new = {item: -2.5 * rank for rank, item in enumerate(candidate)}
    expected = [abs(new[item] - old[item]) for item in reference if item in new]
    drift = score_drift(match(reference, candidate), list(old.values()), list(new.values()))
    assert drift.tolist() == expected


@given(LISTS, LISTS)
def test_a_hit_is_the_first_item_that_is_wanted(items: list[str], wanted: list[str]) -> None:
    ranks = [rank for rank, item in enumerate(items) if item in wanted]
    assert first_hit(items, wanted) == (ranks[0] if ranks else None)


def test_an_item_missing_from_a_shorter_list_counts_as_not_shared() -> None:
    assert overlap_curve(match("abcd", "ab")).tolist() == pytest.approx([1, 1, 2 / 3, 2 / 4])
    assert len(overlap_curve(match("", ""))) == 0
