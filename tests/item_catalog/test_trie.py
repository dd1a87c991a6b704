"""PrefixTrie against a trie of dicts and against a search in the sorted array of SIDs (P23)."""

import subprocess
import sys
from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.trie import NOT_FOUND, PrefixTrie, offset_dtype
from item_catalog.updating.trie_edits import locate
from tests.item_catalog.strategies import Rows, rows
from tests.oracles.dict_trie import DictTrie

LAYOUT = SidLayout((4, 4))
SIDS = np.array([[0, 1], [0, 3], [2, 0]])


@settings(max_examples=80)
@given(rows())
def test_csr_equals_dict_trie(drawn: Rows):
    trie, oracle = drawn.build().trie, DictTrie(drawn.pairs)
    trie.check()
    for depth in range(trie.num_levels):
        prefixes = oracle.prefixes(depth)
        assert trie.num_nodes(depth) == len(prefixes)
        for node, prefix in enumerate(prefixes):
            edges = slice(trie.offsets[depth][node], trie.offsets[depth][node + 1])
            assert trie.codes[depth][edges].tolist() == oracle.children(prefix)
    assert trie.leaf_sids(np.arange(trie.num_leaves)).tolist() == [list(sid) for sid in sorted(oracle.items)]


@settings(max_examples=80)
@given(rows(), st.data())
def test_sids_are_located_as_a_search_in_sorted_sids_finds_them(drawn: Rows, data: st.DataObject):
    oracle = DictTrie(drawn.pairs)
    strangers = data.draw(st.lists(st.tuples(*[st.integers(-1, 70_000)] * drawn.layout.num_levels), max_size=5))
    neighbours = [(*sid[:-1], sid[-1] + step) for sid in drawn.sids for step in (-1, 1)]
    queries = [*drawn.sids, *neighbours, *strangers]
    places = locate(drawn.build().trie, np.array(queries))
    leaves = np.where(places.are_leaves, places.leaves, NOT_FOUND)
    assert leaves.tolist() == [oracle.leaf(sid) for sid in queries]
    assert places.leaves.tolist() == [bisect_left(sorted(oracle.items), sid) for sid in queries]


@settings(max_examples=60)
@given(rows(), st.data())
def test_joined_parts_are_the_whole(drawn: Rows, data: st.DataObject):
    """Cut anywhere between two first codes."""
    sids = np.unique(np.array(drawn.sids), axis=0)
    cuts = [row for row in range(1, len(sids)) if sids[row, 0] != sids[row - 1, 0] and data.draw(st.booleans())]
    whole = PrefixTrie.from_sorted_sids(drawn.layout, sids)
    joined = PrefixTrie.joined([PrefixTrie.from_sorted_sids(drawn.layout, part) for part in np.split(sids, cuts)])
    for left, right in zip((*joined.offsets, *joined.codes), (*whole.offsets, *whole.codes), strict=True):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype


def test_finds_nothing_for_no_sids():
    trie = PrefixTrie.from_sorted_sids(LAYOUT, SIDS)
    assert locate(trie, np.empty((0, 2), np.int64)).leaves.shape == (0,)
    assert trie.leaf_sids(np.empty(0, np.int64)).shape == (0, 2)


def test_one_chain_and_one_wide_node():
    """P12: one root child with 10,000 grandchildren."""
    sids = np.stack([np.zeros(10_000, np.int64), np.arange(10_000)], axis=1)
    trie = PrefixTrie.from_sorted_sids(SidLayout((1, 65_536)), sids)
    trie.check()
    assert (trie.num_nodes(1), trie.num_leaves) == (1, 10_000)
    places = locate(trie, np.array([[0, 9_999], [0, 10_000], [1, 0]]))
    assert (places.leaves.tolist(), places.are_leaves.tolist()) == ([9_999, 10_000, 10_000], [True, False, False])


def test_offsets_widen_where_int32_ends():
    assert (offset_dtype(2**31 - 1), offset_dtype(2**31)) == (np.int32, np.int64)


@pytest.mark.parametrize(
    ("offsets", "codes", "message"),
    [
        pytest.param([[0, 2]], [[0, 2]], "1 levels of arrays", id="level missing"),
        pytest.param([[0, 2], [0, 2, 2]], [[0, 2], [1, 3]], "no children", id="dead end"),
        pytest.param([[0, 2], [0, 2, 4]], [[0, 2], [1, 3, 0]], "do not span", id="past the end"),
        pytest.param([[0, 2], [1, 2, 3]], [[0, 2], [1, 3, 0]], "do not span", id="not from 0"),
        pytest.param([[0, 2], [0, 3]], [[0, 2], [1, 2, 3]], "do not span", id="too few nodes"),
        pytest.param([[0, 2], [0, 2, 3]], [[0, 2], [3, 1, 0]], "not ascending", id="unsorted"),
        pytest.param([[0, 2], [0, 2, 3]], [[0, 2], [1, 1, 0]], "not ascending", id="repeated"),
        pytest.param([[0, 2], [0, 2, 3]], [[0, 4], [1, 3, 0]], "code 4 at level 0", id="outside the codebook"),
    ],
)
def test_check_names_the_broken_invariant(offsets: list, codes: list, message: str):
    trie = PrefixTrie(
        LAYOUT,
        tuple(np.array(level, np.int32) for level in offsets),
        tuple(np.array(level, np.uint16) for level in codes),
    )
    with pytest.raises(CatalogError, match=message):
        trie.check()


def test_trie_needs_numpy_alone():
    """The engine imports it on machines that have no pyarrow."""
    code = "import item_catalog.trie, sys; sys.exit('pyarrow' in sys.modules or 'xxhash' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
