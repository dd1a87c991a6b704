"""The catalogues that one server swaps between, in a store: two that share half of their ids, and one with updates."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from item_catalog.attribute_columns import attribute_values
from item_catalog.catalog import Catalog
from item_catalog.storage.directory import save_catalog
from item_catalog.updating.apply import apply_updates
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from tests.faults.questions import OTHER_FIRST_ITEM
from tests.serving.bundles import LAYOUT, small_catalog

NUM_NEW = 5  # items that the updates add; they move as many, and remove one


@dataclass(frozen=True, slots=True)
class SwapCatalogs:
    """`updates` make `updated` of `first`, and `undoing` make `first` of `updated` again."""

    store: CatalogStore
    first: Catalog
    other: Catalog
    updated: Catalog
    updates: ItemUpdates
    undoing: ItemUpdates

    @classmethod
    def make(cls, directory: Path) -> "SwapCatalogs":
        """A new store that holds `first`, its current version, and `other`."""
        first, other = small_catalog(), small_catalog(OTHER_FIRST_ITEM)
        updates, undoing = _updates(first)
        updated = apply_updates(first, updates).catalog
        assert apply_updates(updated, undoing).catalog.version == first.version
        store = CatalogStore.create(directory, first)
        store.publish(other, activate=False)
        return cls(store, first, other, updated, updates, undoing)


def replace_catalog(directory: Path, catalog: Catalog) -> None:
    """Let a directory hold another catalogue than the one it does."""
    shutil.rmtree(directory)
    save_catalog(catalog, directory)


def _updates(catalog: Catalog) -> tuple[ItemUpdates, ItemUpdates]:
    """Some that add items, move items and remove one, and those that undo them."""
    ids, sids = catalog.item_ids, catalog.sids_of(range(catalog.num_items)).tolist()
    by_id = {item_id: tuple(sid) for item_id, sid in zip(ids.take(range(len(ids))), sids, strict=True)}
    *moving, removed = sorted(by_id)[: NUM_NEW + 1]
    taken = set(by_id.values())
    sizes = LAYOUT.codebook_sizes
    free = [
        (one, two, three)
        for one in range(sizes[0])
        for two in range(sizes[1])
        for three in range(sizes[2])
        if (one, two, three) not in taken
    ]
    added = [ItemUpsert(f"new-{number}", free[number]) for number in range(NUM_NEW)]
    moved = [ItemUpsert(item_id, free[-1 - number]) for number, item_id in enumerate(moving)]
    removed_at = catalog.find([removed])
    values = {name: attribute_values(column, removed_at)[0] for name, column in catalog.attributes.items()}
    back = [ItemUpsert(item_id, by_id[item_id]) for item_id in moving] + [ItemUpsert(removed, by_id[removed], values)]
    return (
        ItemUpdates((*added, *moved), (removed,)),
        ItemUpdates(tuple(back), tuple(upsert.item_id for upsert in added)),
    )
