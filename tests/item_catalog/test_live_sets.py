"""What a filter leaves, against one item after another, one predicate after another."""

from collections.abc import Sequence
from cProfile import Profile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.attribute_columns import attribute_values
from item_catalog.attributes import AttributeKind, Value
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.filtering import live_sets
from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn, filter_problems, filter_problems_in
from item_catalog.filtering.live_sets import live_items, live_nodes, live_parents, live_set
from item_catalog.sid import SidLayout
from tests.item_catalog.attribute_strategies import written
from tests.item_catalog.filter_strategies import VALUES, filters
from tests.item_catalog.strategies import Rows, rows
from tests.oracles.filtering import passes
from tests.oracles.tries import nodes_leading_to

KINDS = {
    "brand": AttributeKind.TEXT,
    "stock": AttributeKind.INTEGER,
    "price": AttributeKind.NUMBER,
    "new": AttributeKind.BOOLEAN,
}


@st.composite
def items(draw: st.DrawFn) -> tuple[Rows, Catalog]:
    """Rows whose codes crowd, so that SIDs and prefixes are shared, with every kind of attribute."""
    drawn = draw(rows())
    count = len(drawn.item_ids)
    return drawn, build_catalog(
        drawn.layout,
        np.array(drawn.sids),
        np.array(drawn.item_ids) if isinstance(drawn.item_ids[0], int) else drawn.item_ids,
        {name: draw(values_of(kind, count)) for name, kind in KINDS.items()},
    )


@st.composite
def values_of(draw: st.DrawFn, kind: AttributeKind, count: int) -> pa.Array:
    present = VALUES[kind]
    if kind is AttributeKind.TEXT:
        present = present.filter(bool)  # no item has an empty text
    if kind is AttributeKind.NUMBER:
        present = present.map(float)
    one = draw(st.sampled_from([present, present | st.none(), st.none()]))
    return written(kind, draw(st.lists(one, min_size=count, max_size=count)))


def lawful(wanted: Filter) -> bool:
    return not filter_problems(wanted) and not filter_problems_in(wanted, KINDS)


@settings(max_examples=150)
@given(items(), filters(KINDS).filter(lawful))
def test_items_and_nodes_are_those_that_pass_one_by_one(drawn: tuple[Rows, Catalog], wanted: Filter):
    catalog = drawn[1]
    columns = {name: attribute_values(column, range(catalog.num_items)) for name, column in catalog.attributes.items()}
    expected = [
        passes({name: values[position] for name, values in columns.items()}, wanted)
        for position in range(catalog.num_items)
    ]
    live = live_set(catalog, wanted)
    assert live.items.tolist() == live_items(catalog, wanted).tolist() == expected
    assert live.num_items == sum(expected)
    sids = list(map(tuple, catalog.sids_of(range(catalog.num_items)).tolist()))
    nodes = nodes_leading_to([sid for sid, passing in zip(sids, expected, strict=True) if passing], sids)
    assert [level.tolist() for level in live.nodes] == [level.tolist() for level in nodes]


@pytest.mark.parametrize("block", [1, 2, 3])
def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch, block: int):
    """Items, leaves and nodes that lie across the blocks; a node of many children in each."""
    rng = np.random.default_rng(block)
    catalog = build_catalog(
        SidLayout((3, 4, 200)),
        np.stack([rng.integers(0, size, 600) for size in (3, 4, 200)], axis=1),
        np.arange(600),
        {"price": rng.integers(0, 10, 600).astype(float)},
    )
    wanted = Filter((InRange("price", at_least=3, below=7),))
    whole = live_set(catalog, wanted)
    monkeypatch.setattr(live_sets, "_BLOCK", block)
    blocked = live_set(catalog, wanted)
    for one, other in zip((whole.items, *whole.nodes), (blocked.items, *blocked.nodes), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(whole.wide, blocked.wide, strict=True):
        np.testing.assert_array_equal(one.nodes, other.nodes)
        np.testing.assert_array_equal(one.live_children, other.live_children)


PRICES: Sequence[Value | None] = [1.5, None, 0.0, -3.0, 2.0**53, 1.5, None]


def prices_that_pass(*predicates: Any) -> list[Value | None]:
    catalog = build_catalog(SidLayout((8,)), np.arange(7)[:, None], np.arange(7), {"price": written_prices()})
    return [price for price, is_live in zip(PRICES, live_items(catalog, Filter(predicates)), strict=True) if is_live]


def written_prices() -> pa.Array:
    return written(AttributeKind.NUMBER, PRICES)


def test_a_missing_value_is_not_the_zero_that_stands_in_its_place():
    assert prices_that_pass(IsIn("price", (0,))) == [0.0]
    assert prices_that_pass(InRange("price", at_most=0)) == [0.0, -3.0]
    assert prices_that_pass(NotIn("price", (0, 1.5))) == [None, -3.0, 2.0**53, None]
    assert prices_that_pass(NotIn("price", (0, 1.5)), InRange("price", at_least=-3)) == [-3.0, 2.0**53]
    assert prices_that_pass() == list(PRICES)


def test_an_integer_that_is_no_float64_equals_no_number_and_still_bounds_them():
    assert prices_that_pass(IsIn("price", (2**53 + 1, 1.5))) == [1.5, 1.5]
    assert prices_that_pass(InRange("price", at_least=2**53 + 1)) == []
    assert prices_that_pass(InRange("price", at_least=2**53)) == [2.0**53]
    assert prices_that_pass(InRange("price", above=2**53 - 1)) == [2.0**53]
    assert prices_that_pass(InRange("price", below=2**53 + 1, above=1.5)) == [2.0**53]


def test_a_text_that_no_item_has_matches_nothing():
    catalog = build_catalog(SidLayout((4,)), [[0], [1], [2]], np.arange(3), {"brand": pa.array(["a", "c", None])})
    for text, is_in, not_in in [("b", [], [0, 1, 2]), ("", [], [0, 1, 2]), ("z", [], [0, 1, 2]), ("c", [1], [0, 2])]:
        assert np.flatnonzero(live_items(catalog, Filter((IsIn("brand", (text,)),)))).tolist() == is_in
        assert np.flatnonzero(live_items(catalog, Filter((NotIn("brand", (text,)),)))).tolist() == not_in


@pytest.mark.parametrize("many", [8, 9, 500], ids=["one by one", "looked up", "a long list"])
def test_lists_of_any_length(many: int):
    rng = np.random.default_rng(many)
    numbers = rng.integers(-600, 600, 300)
    attributes = {"stock": numbers, "price": numbers.astype(float), "brand": numbers.astype(str)}
    catalog = build_catalog(SidLayout((300,)), np.arange(300)[:, None], np.arange(300), attributes)
    held = np.unique(numbers)[::2][: many // 2].tolist()
    listed = held + list(range(1000, 1000 + many - len(held)))  # and some that no item has, above all others
    expected = [number in listed for number in numbers]
    assert 0 < sum(expected) < 300
    for attribute, values in (("stock", listed), ("price", listed), ("brand", map(str, listed))):
        wanted = tuple(values)
        assert live_items(catalog, Filter((IsIn(attribute, wanted),))).tolist() == expected
        assert live_items(catalog, Filter((NotIn(attribute, wanted),))).tolist() == [not one for one in expected]


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (IsIn("colour", ("red",)), r"filter.predicates\[0\].attribute: 'colour' is unknown; the catalogue has: price"),
        (IsIn("price", ()), r"filter.predicates\[0\].in.values: the list is empty; give at least one value"),
        (IsIn("price", ("1",)), r"filter.predicates\[0\].in.values\[0\]: '1' for 'price', which is number"),
    ],
    ids=["unknown attribute", "empty list", "wrong type"],
)
def test_a_filter_with_a_problem_is_refused(predicate: Any, message: str):
    with pytest.raises(CatalogError, match=message):
        prices_that_pass(predicate)


def test_nodes_of_single_chains_share_one_array():
    """Where every node has one child, a level is the one below it; memory is counted once."""
    catalog = build_catalog(
        SidLayout((9, 9, 9)), [[0, 1, 2], [3, 4, 5]], np.arange(2), {"new": np.array([True, False])}
    )
    live = live_set(catalog, Filter((IsIn("new", (True,)),)))
    assert all(level is live.items for level in live.nodes)
    assert live.nbytes == 2


def test_leaves_alone_make_the_nodes_above():
    catalog = build_catalog(SidLayout((4, 4)), [[0, 1], [0, 3], [2, 0], [3, 3]], np.arange(4))
    nodes = live_nodes(catalog.trie, np.array([False, True, False, True]))
    assert [level.tolist() for level in nodes] == [[True, False, True], [False, True, False, True]]
    assert live_parents(np.array([0, 1, 4]), np.array([False, False, False, True])).tolist() == [False, True]


def test_children_of_wide_nodes_are_counted_beforehand_and_of_others_when_asked():
    sids = [[0, code] for code in range(65)] + [[1, code] for code in range(64)]
    catalog = build_catalog(SidLayout((2, 128)), sids, np.arange(129), {"stock": np.arange(129)})
    live = live_set(catalog, Filter((InRange("stock", at_least=60, below=100),)))
    assert [wide.nodes.tolist() for wide in live.wide] == [[], [0], []]
    counts = live.count_children(1, np.array([0, 1]), catalog.trie.offsets[1])
    assert counts.tolist() == [5, 35]


@pytest.mark.parametrize("block", [7, live_sets._BLOCK])
def test_wide_nodes_beside_each_other_and_apart_are_counted_each_by_itself(monkeypatch: pytest.MonkeyPatch, block: int):
    """Ranges that touch, ranges with narrow nodes between them, and one that ends where the children end."""
    monkeypatch.setattr(live_sets, "_BLOCK", block)
    widths = [70, 3, 1, 65, 300, 64, 2, 99]
    sids = [[first, code] for first, width in enumerate(widths) for code in range(width)]
    stock = np.random.default_rng(0).integers(0, 2, len(sids))
    catalog = build_catalog(SidLayout((len(widths), 300)), sids, np.arange(len(sids)), {"stock": stock})
    wide = live_set(catalog, Filter((IsIn("stock", (1,)),))).wide[1]
    assert wide.nodes.tolist() == [0, 3, 4, 7]
    bounds = np.cumsum([0, *widths])
    assert wide.live_children.tolist() == [stock[bounds[node] : bounds[node + 1]].sum() for node in wide.nodes]


def test_many_wide_nodes_cost_no_loop_over_them():
    """As many calls for 3,000 of them as for 3."""
    calls = []
    for first_codes in (3, 3000):
        sids = np.stack([np.arange(first_codes * 65) // 65, np.arange(first_codes * 65) % 65], axis=1)
        catalog = build_catalog(
            SidLayout((first_codes, 65)), sids, np.arange(len(sids)), {"stock": np.arange(len(sids))}
        )
        wanted = Filter((InRange("stock", at_least=40),))
        profile = Profile()
        profile.runcall(live_set, catalog, wanted)
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    assert calls[1] < calls[0] + 50
