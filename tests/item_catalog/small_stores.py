"""Tiny catalogues and updates for stores, and what is live in one."""

from pathlib import Path

import numpy as np

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.sid import SidLayout
from item_catalog.updating.store import CatalogStore, Snapshot
from item_catalog.updating.updates import ItemUpdates, ItemUpsert

LAYOUT = SidLayout((4, 4))


def catalog_of(*ids: int) -> Catalog:
    return build_catalog(LAYOUT, np.array([[id_ % 4, 0] for id_ in ids]), np.array(ids), {"stock": np.array(ids) > 2})


ONE, TWO, THREE = catalog_of(1, 2), catalog_of(1, 2, 3), catalog_of(4)
ADD_9 = ItemUpdates((ItemUpsert("9", (3, 3), {"stock": True}),))
REMOVE_1 = ItemUpdates(removals=("1",))


def ids_of(snapshot: Snapshot) -> list[str]:
    catalog = snapshot.catalog
    return sorted(catalog.item_ids.take(np.arange(catalog.num_items)))


def live(store: CatalogStore) -> list[str]:
    return ids_of(CatalogStore(store.path).load())


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def apply(store: CatalogStore, updates: ItemUpdates) -> Snapshot:
    return store.apply(updates, store.load())[0]
