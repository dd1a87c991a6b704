"""Distinct codes: a loop over items and their ranked codes is the oracle."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.assigning.distinct_codes import DistinctCodes


def test_the_next_nearest_free_code_is_given_in_turn():
    centroids = np.array([[0], [1], [3], [7]], np.float32)
    points = np.array([[0], [0.1], [0.2], [0], [0], [0]], np.float32)
    prefixes = np.array([5, 5, 5, 5, 5, 6])
    assert DistinctCodes(centroids).give(prefixes, points).tolist() == [0, 1, 2, 3, 0, 0]


@settings(max_examples=100)
@given(st.data())
def test_no_sid_is_given_twice_while_one_is_free(data: st.DataObject):
    num_codes = data.draw(st.integers(1, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    centroids = random.standard_normal((num_codes, 2)).astype(np.float32)
    count = data.draw(st.integers(1, 30))
    points = random.standard_normal((count, 2)).astype(np.float32)
    prefixes = random.integers(0, 4, count)
    cut = data.draw(st.integers(0, count))
    given_codes = DistinctCodes(centroids)
    codes = np.concatenate(
        [given_codes.give(prefixes[:cut], points[:cut]), given_codes.give(prefixes[cut:], points[cut:])]
    )
    for prefix in range(4):
        of_prefix = codes[prefixes == prefix]
        assert len(set(of_prefix.tolist())) == min(len(of_prefix), num_codes)
    nearest = np.square(points[:, None] - centroids).sum(axis=2).argmin(axis=1)
    first = {}
    for row, sid in enumerate(zip(prefixes.tolist(), nearest.tolist(), strict=True)):
        first.setdefault(sid, row)
    of_first_chunk = [row for row in first.values() if row < cut]
    assert codes[of_first_chunk].tolist() == nearest[of_first_chunk].tolist()
