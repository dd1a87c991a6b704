"""Differences of two catalogues are those of the dicts they were built of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.updating.apply import apply_updates
from item_catalog.updating.differences import differences
from tests.item_catalog.update_strategies import ATTRIBUTES, Shop, batches, shops


def ids_at(catalog: Catalog, positions: np.ndarray) -> set[str]:
    return set(catalog.item_ids.take(positions))


def assert_told(one: Shop, other: Shop) -> None:
    before, after = one.build(), other.build()
    found = differences(before, after)
    both = one.items.keys() & other.items.keys()
    assert ids_at(after, found.added) == other.items.keys() - both
    assert ids_at(before, found.removed) == one.items.keys() - both
    levels = {
        id_: next(level for level in range(3) if one.items[id_].sid[level] != other.items[id_].sid[level])
        for id_ in both
        if one.items[id_].sid != other.items[id_].sid
    }
    assert dict(zip(after.item_ids.take(found.moved), found.moved_levels.tolist(), strict=True)) == levels
    assert found.changed.keys() == ATTRIBUTES.keys()
    for name, positions in found.changed.items():
        differing = {
            id_ for id_ in both if one.items[id_].attributes.get(name) != other.items[id_].attributes.get(name)
        }
        assert ids_at(after, positions) == differing


@settings(max_examples=100)
@given(one=shops(), other=shops())
def test_of_two_catalogues(one: Shop, other: Shop):
    assert_told(one, other)


@settings(max_examples=100)
@given(data=st.data(), shop=shops())
def test_of_a_catalogue_and_what_updates_made_of_it(data: st.DataObject, shop: Shop):
    updates = data.draw(batches(shop))
    assert_told(shop, shop.after(updates))
    same = differences(shop.build(), apply_updates(shop.build(), updates).catalog)
    assert len(same.added) - len(same.removed) == len(shop.after(updates).items) - len(shop.items)


def test_attributes_that_come_go_or_change_their_kind():
    layout = SidLayout((2,))
    before = build_catalog(layout, [[0]], ["a"], {"gone": np.array([1]), "other": np.array([1]), "same": np.array([1])})
    after = build_catalog(layout, [[0]], ["a"], {"new": np.array([1]), "other": np.array([1.0]), "same": np.array([1])})
    found = differences(before, after)
    assert (found.attributes_added, found.attributes_removed) == (("new", "other"), ("gone", "other"))
    assert {name: positions.tolist() for name, positions in found.changed.items()} == {"same": []}


def test_other_numbers_of_levels_do_not_compare():
    before = build_catalog(SidLayout((2,)), [[0]], ["a"])
    after = build_catalog(SidLayout((2, 2)), [[0, 0]], ["a"])
    with pytest.raises(CatalogError, match="SIDs of 1 levels before and 2 afterwards; compare catalogues of one"):
        differences(before, after)
