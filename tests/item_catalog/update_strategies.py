"""Small catalogues as dicts, batches of updates of every kind, and what they make of the dicts: the slow oracle."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from item_catalog.attributes import Value
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.sid import SidLayout
from item_catalog.updating.updates import ItemUpdates, ItemUpsert

LAYOUT = SidLayout((3, 2, 4))
ATTRIBUTES = {
    "brand": pa.large_string(),
    "in_stock": pa.bool_(),
    "price": pa.float64(),
    "published": pa.int64(),
}
VALUES: dict[str, st.SearchStrategy[Value | None]] = {
    "brand": st.none() | st.sampled_from(["", "a", "b", "é", "zz", "a\0"]).filter(bool),
    "in_stock": st.none() | st.booleans(),
    "price": st.none() | st.sampled_from([0.0, -0.0, 1.5, -3.0, 7]),
    "published": st.none() | st.integers(-2, 2) | st.just(2**63 - 1),
}
SIDS = st.tuples(*(st.integers(0, size - 1) for size in LAYOUT.codebook_sizes))
INTEGER_IDS = st.integers(-3, 20).map(str)
TEXT_IDS = st.sampled_from(["a", "b", "ab", "é", "z", "aa", "\U0001f600", "ﬀ", "c", "0"])


class Item(NamedTuple):
    sid: tuple[int, ...]
    attributes: dict[str, Value]


@dataclass
class Shop:
    """What a catalogue is to hold, as a dict by id."""

    has_integer_ids: bool
    items: dict[str, Item] = field(default_factory=dict)

    def build(self) -> Catalog:
        ids = list(self.items)
        columns = {
            name: pa.array([item.attributes.get(name) for item in self.items.values()], kind)
            for name, kind in ATTRIBUTES.items()
        }
        sids = np.array([item.sid for item in self.items.values()])
        return build_catalog(
            LAYOUT, sids, np.array([int(id_) for id_ in ids]) if self.has_integer_ids else ids, columns
        )

    def after(self, updates: ItemUpdates) -> "Shop":
        items = dict(self.items)
        for upsert in updates.upserts:
            before = items.get(upsert.item_id)
            values = {**(before.attributes if before else {}), **upsert.attributes}
            sid = upsert.sid if upsert.sid is not None else before.sid
            items[upsert.item_id] = Item(sid, {name: value for name, value in values.items() if value is not None})
        for item_id in updates.removals:
            items.pop(item_id, None)
        return Shop(self.has_integer_ids, items)


def attributes() -> st.SearchStrategy[dict[str, Value | None]]:
    return st.fixed_dictionaries({}, optional=VALUES)


@st.composite
def shops(draw: st.DrawFn) -> Shop:
    has_integer_ids = draw(st.booleans())
    ids = draw(st.sets(INTEGER_IDS if has_integer_ids else TEXT_IDS, min_size=1, max_size=12))
    return Shop(has_integer_ids, {id_: Item(draw(SIDS), draw(attributes())) for id_ in sorted(ids)})


@st.composite
def batches(draw: st.DrawFn, shop: Shop) -> ItemUpdates:
    """A valid batch for the shop that leaves an item; now and then nothing but attributes, or nothing at all."""
    drawn = draw(st.lists(INTEGER_IDS if shop.has_integer_ids else TEXT_IDS, unique=True, max_size=8))
    may_move = draw(st.booleans())
    upserts, removals = [], []
    for item_id in drawn:
        if not may_move and item_id in shop.items:
            upserts.append(ItemUpsert(item_id, None, draw(attributes())))
        elif not may_move:
            continue
        elif draw(st.booleans()):
            removals.append(item_id)
        else:
            sid = draw(SIDS | st.none()) if item_id in shop.items else draw(SIDS)
            upserts.append(ItemUpsert(item_id, sid, draw(attributes())))
    updates = ItemUpdates(tuple(upserts), tuple(removals))
    return updates if shop.after(updates).items else ItemUpdates(updates.upserts)
