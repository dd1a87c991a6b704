"""The floors against examples small enough to count by hand."""

import numpy as np
import pytest

from recall_service.demo.floors import markov_floor, popularity_floor, recall_at
from recall_service.demo.shop import Histories

# User 0: 0 1 2, user 1: 0 2 1 2, user 2: 3 1. Taken: item 0 twice, 1 thrice, 2 thrice, 3 once, 4 never.
# Followed: 0 by 1 and by 2, 1 by 2 twice, 2 by 1, 3 by 1. The end of one user is not followed by the next user.
TRAIN = Histories(
    user_ids=("u0", "u1", "u2"),
    offsets=np.array([0, 3, 7, 9]),
    items=np.array([0, 1, 2, 0, 2, 1, 2, 3, 1], np.int32),
)


def test_popularity_counts_and_breaks_ties_by_row() -> None:
    assert popularity_floor(TRAIN, 5, num_users=2, k=5).tolist() == [[1, 2, 0, 3, 4]] * 2


def test_popularity_is_cut_at_k() -> None:
    assert popularity_floor(TRAIN, 5, num_users=1, k=2).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (0, [1, 2, 0, 3, 4]),  # both once: popularity, then row
        (1, [2, 1, 0, 3, 4]),  # 2 followed, the rest by popularity
        (2, [1, 2, 0, 3, 4]),
        (3, [1, 2, 0, 3, 4]),
        (4, [1, 2, 0, 3, 4]),  # never seen: popularity alone
    ],
)
def test_markov_counts_transitions_and_backs_off_to_popularity(last: int, expected: list[int]) -> None:
    assert markov_floor(TRAIN, 5, np.array([last]), k=5).tolist() == [expected]


def test_a_transition_outweighs_any_popularity() -> None:
    train = Histories(("u0", "u1"), np.array([0, 2, 9]), np.array([0, 3, 1, 1, 1, 1, 1, 1, 1], np.int32))
    assert markov_floor(train, 4, np.array([0]), k=2).tolist() == [[3, 1]]


def test_markov_ranks_many_users_as_it_ranks_each() -> None:
    rng = np.random.default_rng(5)
    train = Histories(tuple("abcd"), np.array([0, 50, 90, 91, 200]), rng.integers(30, size=200).astype(np.int32))
    last_items = rng.integers(30, size=300)
    together = markov_floor(train, 30, last_items, k=7)
    assert together.tolist() == [markov_floor(train, 30, last_items[[user]], k=7)[0].tolist() for user in range(300)]


@pytest.mark.parametrize(("k", "expected"), [(1, 0.25), (2, 0.5), (3, 0.75), (9, 0.75)])
def test_recall_counts_targets_among_the_first_k(k: int, expected: float) -> None:
    recalled = [["a", "b"], ["b", "a"], [], ["x", "y", "a"]]
    assert recall_at(recalled, ["a"] * 4, k) == expected
