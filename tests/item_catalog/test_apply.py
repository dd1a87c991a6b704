"""A catalogue after updates is the one that would be built of the rows that are left; what is wrong changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.updating.apply import Applied, apply_updates
from item_catalog.updating.updates import InvalidUpdates, ItemUpdates, ItemUpsert, combined
from tests.item_catalog.update_strategies import ATTRIBUTES, LAYOUT, Item, Shop, batches, shops

SHOP = Shop(
    True,
    {
        "7": Item((0, 0, 1), {"brand": "acme", "price": 9.5, "in_stock": True}),
        "8": Item((0, 0, 1), {"brand": "bee"}),
        "9": Item((2, 1, 3), {"brand": "cat", "published": 17}),
    },
)
CATALOG = SHOP.build()
TEXT_CATALOG = Shop(False, {"a": Item((0, 0, 1), {})}).build()


def assert_same(one: Catalog, other: Catalog) -> None:
    assert one.arrays().keys() == other.arrays().keys()
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name], err_msg=name, strict=True)
    assert one.version == other.version
    one.check()


def one(item_id: str, sid: tuple[int, ...] | None = None, **attributes: object) -> ItemUpdates:
    return ItemUpdates((ItemUpsert(item_id, sid, attributes),))


@settings(max_examples=400)
@given(data=st.data(), shop=shops())
def test_equals_what_would_be_built_of_the_rows_that_are_left(data: st.DataObject, shop: Shop):
    catalog, before = shop.build(), shop
    arrays = {name: array.copy() for name, array in catalog.arrays().items()}
    updates = data.draw(batches(shop))
    applied = apply_updates(catalog, updates)
    after = shop.after(updates)
    assert_same(applied.catalog, after.build())
    known = {upsert.item_id for upsert in updates.upserts} & before.items.keys()
    gone = before.items.keys() - after.items.keys()
    assert (applied.added, applied.changed) == (len(updates.upserts) - len(known), len(known))
    assert (applied.removed, applied.unknown_removals) == (len(gone), len(updates.removals) - len(gone))
    for name, array in catalog.arrays().items():
        np.testing.assert_array_equal(array, arrays[name], err_msg=f"{name} of the catalogue before", strict=True)


@pytest.mark.parametrize("has_integer_ids", [True, False], ids=["integer ids", "text ids"])
def test_hundreds_of_updates_to_thousands_of_items(has_integer_ids: bool):
    """So many that ids are looked up all at once, and texts by the thousand come and go."""
    rng = np.random.default_rng(3)

    def item(number: int) -> Item:
        return Item(tuple(rng.integers(0, LAYOUT.codebook_sizes).tolist()), {"brand": f"b{rng.integers(0, 2_000)}"})

    ids = rng.permutation(4_000).tolist()
    shop = Shop(has_integer_ids, {str(id_): item(id_) for id_ in ids[:3_000]})
    upserts = [ItemUpsert(str(id_), item(id_).sid, item(id_).attributes) for id_ in ids[2_700:3_300]]
    stays = [ItemUpsert(str(id_), None, {"brand": None, "price": 1.0}) for id_ in ids[2_400:2_700]]
    updates = ItemUpdates((*upserts, *stays), tuple(str(id_) for id_ in ids[2_000:2_400]))
    assert_same(apply_updates(shop.build(), updates).catalog, shop.after(updates).build())


@settings(max_examples=100)
@given(data=st.data(), shop=shops())
def test_batches_combined_do_what_they_do_one_after_another(data: st.DataObject, shop: Shop):
    catalog, now = shop.build(), shop
    log = []
    for _ in range(data.draw(st.integers(0, 4))):
        log.append(data.draw(batches(now)))
        now = now.after(log[-1])
    assert_same(apply_updates(catalog, combined(log, ATTRIBUTES)).catalog, now.build())


def test_attributes_alone_share_trie_ids_and_other_columns():
    after = apply_updates(CATALOG, one("8", price=3.0)).catalog
    assert after.trie is CATALOG.trie
    assert after.item_offsets is CATALOG.item_offsets
    assert after.item_ids is CATALOG.item_ids
    assert [name for name in ATTRIBUTES if after.attributes[name] is not CATALOG.attributes[name]] == ["price"]


def test_moves_among_sids_with_other_items_share_the_trie():
    shop = SHOP.after(one("6", (2, 1, 3)))
    before = shop.build()
    after = apply_updates(before, one("8", (2, 1, 3))).catalog
    assert after.trie is before.trie
    assert_same(after, shop.after(one("8", (2, 1, 3))).build())


@pytest.mark.parametrize(
    "updates",
    [ItemUpdates(), ItemUpdates(removals=("1", "x")), one("8"), one("9", (2, 1, 3), brand="cat", price=None)],
    ids=["empty", "unknown removals", "named", "same values"],
)
def test_what_changes_nothing_is_the_same_catalogue(updates: ItemUpdates):
    assert apply_updates(CATALOG, updates).catalog is CATALOG


def test_counts():
    updates = ItemUpdates((ItemUpsert("8"), ItemUpsert("10", (0, 0, 0))), ("7", "5", "no number"))
    applied = apply_updates(CATALOG, updates)
    assert applied == Applied(applied.catalog, added=1, changed=1, removed=1, unknown_removals=2)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        pytest.param(one("1", (0, 0)), r"upserts\[0\]\.sid: 2 codes; give 3", id="levels"),
        pytest.param(one("1", (0, 2, 0)), r"upserts\[0\]\.sid\[1\]: 2; codes there are 0 to 1", id="code"),
        pytest.param(one("1", (0, -1, 0)), r"upserts\[0\]\.sid\[1\]: -1; codes there", id="negative code"),
        pytest.param(one("1", (0, True, 0)), r"upserts\[0\]\.sid\[1\]: True; codes there", id="boolean code"),
        pytest.param(one("1", brand="x"), r"upserts\[0\]\.sid: none, and item '1' is new; give", id="new without SID"),
        pytest.param(one("x", (0, 0, 0)), r"upserts\[0\]\.item_id: 'x' in a catalogue of integer ids", id="text id"),
        pytest.param(one("07", (0, 0, 0)), r"upserts\[0\]\.item_id: '07' in a catalogue of int", id="spelling"),
        pytest.param(one(str(2**63), (0, 0, 0)), r"upserts\[0\]\.item_id: '9223372036854775808' in", id="int64"),
        pytest.param(one("8", colour="red"), r"colour: the catalogue has no such attribute; it has brand, ", id="name"),
        pytest.param(one("8", brand=3), r"upserts\[0\]\.attributes\.brand: 3; give text of 1 to 256", id="no text"),
        pytest.param(one("8", brand=""), r"brand: ''; give text of 1", id="empty text"),
        pytest.param(one("8", brand="é" * 129), r"brand: 'é+\.\.\.; give text of 1 to 256 bytes", id="long text"),
        pytest.param(one("8", brand="\ud800"), r"brand: '\\ud800'; give text of 1 to 256 bytes", id="surrogate"),
        pytest.param(one("8", published=1.0), r"published: 1\.0; give an integer within int64", id="no integer"),
        pytest.param(one("8", published=True), r"published: True; give an integer", id="boolean for integer"),
        pytest.param(one("8", published=2**63), r"published: 9223372036854775808; give", id="large integer"),
        pytest.param(one("8", price=float("nan")), r"price: nan; give a finite number", id="nan"),
        pytest.param(one("8", price=10**400), r"price: 10*\.\.\.; give a finite number", id="beyond double"),
        pytest.param(one("8", price="9"), r"price: '9'; give a finite number", id="text for number"),
        pytest.param(one("8", in_stock=1), r"in_stock: 1; give true or false", id="no boolean"),
        pytest.param(
            ItemUpdates((ItemUpsert("8"), ItemUpsert("8"))), r"upserts\[1\]\.item_id: '8' stands in the", id="twice"
        ),
        pytest.param(ItemUpdates((ItemUpsert("8"),), ("8",)), r"removals\[0\]: '8' stands in the batch", id="both"),
        pytest.param(ItemUpdates((), ("8", "8")), r"removals\[1\]: '8' stands in the batch twice", id="removed twice"),
        pytest.param(ItemUpdates((), ("8", "7", "9")), "removals: they are all 3 items there are", id="the last item"),
        pytest.param(one(""), r"upserts\[0\]\.item_id: ''; give 1 to 256 bytes of UTF-8", id="no id"),
        pytest.param(one("x" * 257), r"item_id: 'x+\.\.\.; give 1 to 256 bytes", id="long id"),
        pytest.param(one("\udfff"), r"item_id: '\\udfff'; give 1 to 256 bytes of UTF-8", id="surrogate id"),
    ],
)
def test_what_is_wrong_is_named(updates: ItemUpdates, message: str):
    with pytest.raises(CatalogError, match=message):
        apply_updates(CATALOG, updates)


def test_every_problem_is_told_in_the_order_of_the_batch():
    updates = ItemUpdates(
        (ItemUpsert("8", None, {"brand": 1, "colour": 2}), ItemUpsert("9", (9, 0, 9)), ItemUpsert("10"))
    )
    with pytest.raises(
        InvalidUpdates, match=r"upserts\[0\]\.attributes\.brand: 1; .* \(and 4 more problems\)"
    ) as raised:
        apply_updates(CATALOG, updates)
    assert [problem.path for problem in raised.value.problems] == [
        "upserts[0].attributes.brand",
        "upserts[0].attributes.colour",
        "upserts[1].sid[0]",
        "upserts[1].sid[2]",
        "upserts[2].sid",
    ]


def test_text_ids_of_any_kind_are_fine_in_a_text_catalogue():
    applied = apply_updates(TEXT_CATALOG, one("7", (2, 1, 0)))
    assert applied.catalog.find(["7", "a"]).tolist() == [1, 0]
