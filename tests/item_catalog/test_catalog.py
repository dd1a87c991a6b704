"""Catalog: bulk translation between ids, positions, leaves and SIDs."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.attribute_columns import attribute_column
from item_catalog.building.builder import build_catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.statistics import AttributeStatistics, LevelStatistics, catalog_statistics
from item_catalog.updating.trie_edits import locate
from tests.item_catalog.strategies import Rows, rows
from tests.oracles.dict_trie import DictTrie

CATALOG = build_catalog(
    SidLayout((4, 4)), [[2, 0], [0, 3], [0, 1], [0, 3], [0, 3]], np.array([50, 40, 30, 20, 10])
)  # positions: 30 | 10, 20, 40 | 50


@settings(max_examples=60)
@given(rows(), st.data())
def test_leaves_expand_as_the_oracle_says(drawn: Rows, data: st.DataObject):
    catalog, oracle = drawn.build(), DictTrie(drawn.pairs)
    sids = sorted(oracle.items)
    leaves = data.draw(st.lists(st.integers(0, len(sids) - 1), max_size=10))
    positions, counts = catalog.items_of_leaves(leaves)
    assert counts.tolist() == [len(oracle.items[sids[leaf]]) for leaf in leaves]
    assert catalog.item_ids.take(positions) == [str(item) for leaf in leaves for item in oracle.items[sids[leaf]]]


@settings(max_examples=60)
@given(rows())
def test_ids_lead_to_sids(drawn: Rows):
    catalog = drawn.build()
    positions = catalog.find([str(item_id) for item_id in drawn.item_ids])
    assert catalog.sids_of(positions).tolist() == [list(sid) for sid in drawn.sids]
    assert catalog.leaves_of(positions).tolist() == locate(catalog.trie, np.array(drawn.sids)).leaves.tolist()


def test_positions_run_by_leaf_and_then_by_id():
    assert CATALOG.item_ids.take(range(CATALOG.num_items)) == ["30", "10", "20", "40", "50"]
    assert CATALOG.items_of_leaves([2, 1])[0].tolist() == [4, 1, 2, 3]
    assert CATALOG.find(["40", "41", "30"]).tolist() == [3, -1, 0]


@pytest.mark.parametrize("stray", [-1, 5])
def test_positions_that_are_none(stray: int):
    with pytest.raises(CatalogError, match=f"positions: {stray} is not one of 0 to 4"):
        CATALOG.leaves_of([0, stray])
    with pytest.raises(CatalogError, match=f"positions: {stray} is not one of 0 to 4"):
        CATALOG.sids_of([stray])


def test_leaves_that_are_none():
    with pytest.raises(CatalogError, match="leaves: 3 is not one of 0 to 2"):
        CATALOG.items_of_leaves([3])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        pytest.param([0, 1, 4, 4], "do not span", id="end"),
        pytest.param([1, 2, 4, 5], "do not span", id="start"),
        pytest.param([0, 1, 5], "do not span", id="length"),
        pytest.param([0, 1, 1, 5], "a SID has no item", id="empty leaf"),
        pytest.param([0, 3, 2, 5], "a SID has no item", id="falling"),
    ],
)
def test_check_of_item_offsets(offsets: list[int], message: str):
    broken = dataclasses.replace(CATALOG, item_offsets=np.array(offsets, np.int32))
    with pytest.raises(CatalogError, match=message):
        broken.check()


def test_statistics_count_collisions_and_branching():
    statistics = catalog_statistics(CATALOG)
    assert (statistics.num_items, statistics.num_sids) == (5, 3)
    assert (statistics.num_shared_sids, statistics.num_items_on_shared_sids, statistics.max_items_per_sid) == (1, 3, 3)
    assert statistics.levels == (LevelStatistics(4, 2, 2.0, 2, 0, 1), LevelStatistics(4, 3, 1.5, 2, 1, 3))
    assert statistics.trie_bytes == (2 + 3) * 4 + (2 + 3) * 2
    assert statistics.total_bytes == statistics.trie_bytes + 4 * 4 + 5 * 8 + 5 * 4


@settings(max_examples=30)
@given(rows())
def test_sids_are_decided_where_no_other_has_their_prefix(drawn: Rows):
    catalog = drawn.build()
    sids = set(map(tuple, drawn.sids))
    for depth, level in enumerate(catalog_statistics(catalog).levels, start=1):
        prefixes = [sid[:depth] for sid in sids]
        assert level.num_decided_sids == sum(prefixes.count(prefix) == 1 for prefix in prefixes)


def test_statistics_of_attributes():
    attributes = {
        "category": pa.array(["b", None, "a", "b", None]),
        "stock": np.array([7, 7, 0, 1, 7]),
        "price": np.array([1.5, np.nan, 0.0, -0.0, 1.5]),
        "is_new": np.array([True] * 5),
        "nothing": pa.nulls(5, pa.string()),
    }
    catalog = build_catalog(CATALOG.layout, CATALOG.sids_of(range(5)), np.arange(5), attributes)
    assert catalog_statistics(catalog).attributes == {
        "category": AttributeStatistics("text", 2, 2, 5 * 4 + 5 + 3 * 8 + 2),
        "is_new": AttributeStatistics("boolean", 1, 0, 5),
        "nothing": AttributeStatistics("text", 0, 5, 5 * 4 + 5),
        "price": AttributeStatistics("number", 2, 1, 5 * 8 + 5),
        "stock": AttributeStatistics("integer", 3, 0, 5 * 8),
    }
    assert catalog_statistics(CATALOG).attributes == {}


def test_check_looks_at_every_attribute():
    column = attribute_column("stock", np.array([1, 2, 3, 4]))
    broken = dataclasses.replace(CATALOG, attributes={"stock": column})
    with pytest.raises(CatalogError, match=r"attribute stock: int64 of shape \[4\] for 5 items"):
        broken.check()
