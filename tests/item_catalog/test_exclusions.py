"""What dies of exclusions, against the sets of SIDs that are left."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.filtering import live_sets
from item_catalog.filtering.exclusions import DeadSet, dead_set
from item_catalog.filtering.filters import Filter, IsIn
from item_catalog.filtering.live_sets import live_set
from item_catalog.lockstep import owners_of
from item_catalog.sid import SidLayout
from tests.item_catalog.strategies import Rows, rows
from tests.oracles.tries import nodes_leading_to

PASSING = Filter((IsIn("passes", (True,)),))


def with_flags(drawn: Rows, passing: list[bool]) -> Catalog:
    ids = np.array(drawn.item_ids) if isinstance(drawn.item_ids[0], int) else drawn.item_ids
    return build_catalog(drawn.layout, np.array(drawn.sids), ids, {"passes": np.array(passing)})


def expected_deaths(
    catalog: Catalog, was_live: NDArray[np.bool_], excluded: list[int]
) -> tuple[list[int], list[list[int]]]:
    """Items and nodes that were live and are not any more, by listing every prefix of every item."""
    is_live = was_live.copy()
    is_live[excluded] = False
    sids = list(map(tuple, catalog.sids_of(range(catalog.num_items)).tolist()))
    before, after = (
        nodes_leading_to([sid for sid, one in zip(sids, flags, strict=True) if one], sids)
        for flags in (was_live, is_live)
    )
    nodes = [np.flatnonzero(was & ~still).tolist() for was, still in zip(before, after, strict=True)]
    return np.flatnonzero(was_live & ~is_live).tolist(), nodes


def as_lists(dead: DeadSet) -> tuple[list[int], list[list[int]]]:
    return dead.items.tolist(), [level.tolist() for level in dead.nodes]


@settings(max_examples=150)
@given(rows(), st.booleans(), st.sampled_from([0, 1, 64]), st.data())
def test_what_dies_is_what_no_item_is_left_below(drawn: Rows, is_filtered: bool, wide: int, data: st.DataObject):
    """In any order and repeated; with a filter, whether children are counted beforehand (wide 0) or when asked."""
    flags = st.lists(st.booleans(), min_size=len(drawn.item_ids), max_size=len(drawn.item_ids))
    catalog = with_flags(drawn, data.draw(flags) if is_filtered else [True] * len(drawn.item_ids))
    excluded = data.draw(st.lists(st.integers(0, catalog.num_items - 1), max_size=2 * catalog.num_items))
    with patch.object(live_sets, "_WIDE", wide):
        live = live_set(catalog, PASSING)
        dead = dead_set(catalog, np.array(excluded, np.int64), live if is_filtered else None)
    assert as_lists(dead) == expected_deaths(catalog, live.items, excluded)


CATALOG = build_catalog(
    SidLayout((2, 3)),
    [[0, 0], [0, 0], [0, 1], [1, 2]],
    np.array([10, 11, 12, 13]),
    {"passes": np.array([True, False, True, False])},
)


@pytest.mark.parametrize(
    ("excluded", "nodes"),
    [
        ([], [[], []]),
        ([0], [[], []]),
        ([1, 0, 1], [[], [0]]),
        ([0, 1, 2], [[0], [0, 1]]),
        ([3], [[1], [2]]),
        ([0, 1, 2, 3], [[0, 1], [0, 1, 2]]),
    ],
    ids=["nothing", "one of two on a SID", "both of them", "a subtree", "a chain", "everything"],
)
def test_a_node_dies_with_its_last_item(excluded: list[int], nodes: list[list[int]]):
    dead = dead_set(CATALOG, np.array(excluded, np.int64))
    assert as_lists(dead) == (sorted(set(excluded)), nodes)


@pytest.mark.parametrize(
    ("excluded", "items", "nodes"),
    [([1, 3], [], [[], []]), ([0], [0], [[], [0]]), ([2, 0], [0, 2], [[0], [0, 1]])],
    ids=["items that do not pass anyway", "the only one on a SID that passes", "all that pass"],
)
def test_under_a_filter_only_what_passes_counts(excluded: list[int], items: list[int], nodes: list[list[int]]):
    dead = dead_set(CATALOG, np.array(excluded), live_set(CATALOG, PASSING))
    assert as_lists(dead) == (items, nodes)


@pytest.mark.parametrize("stray", [-1, 4])
def test_a_position_that_is_none_is_refused(stray: int):
    with pytest.raises(CatalogError, match=f"positions: {stray} is not one of 0 to 3; leave out those that were not"):
        dead_set(CATALOG, np.array([0, stray]))


def test_the_whole_of_a_wide_node_dies_only_with_its_last_child():
    """65,536 children of one node, of which a third pass; all of these but one are excluded, and then that one too."""
    count = 65_536
    codes = np.stack([np.zeros(count, np.int64), np.arange(count)], axis=1)
    catalog = build_catalog(SidLayout((1, count)), codes, np.arange(count), {"passes": np.arange(count) % 3 == 0})
    live = live_set(catalog, PASSING)
    passing = np.flatnonzero(live.items)
    assert [len(level) for level in dead_set(catalog, passing[1:], live).nodes] == [0, len(passing) - 1]
    assert [len(level) for level in dead_set(catalog, passing, live).nodes] == [1, len(passing)]


@settings(max_examples=100)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=70), st.data())
def test_owners_are_found_as_a_search_finds_them(counts: list[int], data: st.DataObject):
    offsets = np.cumsum([0, *counts]).astype(np.int32)
    things = np.array(data.draw(st.lists(st.integers(0, int(offsets[-1]) - 1), max_size=20)), np.int64)
    owners = owners_of(offsets, things)
    assert owners.tolist() == [np.repeat(np.arange(len(counts)), counts)[thing] for thing in things]
