"""What whoever changes a store may ask of the change: what it leads to, and where a way back leads."""

from pathlib import Path

import numpy as np
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.updating.store import CatalogStore, Snapshot
from item_catalog.updating.updates import ItemUpdates


def catalog_of(*item_ids: str) -> Catalog:
    sids = np.stack([np.arange(len(item_ids)), np.zeros(len(item_ids), int)], axis=1)
    return build_catalog(SidLayout((4, 4)), sids, item_ids)


FIRST, SECOND, THIRD = catalog_of("a", "b"), catalog_of("a", "b", "c"), catalog_of("b", "c", "d")


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    """SECOND is current, FIRST was before."""
    store = CatalogStore.create(tmp_path / "store", FIRST)
    store.publish(SECOND)
    return store


def test_updates_are_written_once_what_they_lead_to_is_accepted(store: CatalogStore) -> None:
    before, snapshot, seen = store.head(), store.load(), list[Snapshot]()

    def refuse(after: Snapshot) -> None:
        seen.append(after)
        raise ValueError("not that")

    with pytest.raises(ValueError, match="not that"):
        store.apply(ItemUpdates(removals=("c",)), snapshot, refuse)
    assert (store.head(), store.load().catalog.version) == (before, SECOND.version)
    _, applied = store.apply(ItemUpdates(removals=("c",)), snapshot, seen.append)
    assert [after.catalog.version for after in seen] == [FIRST.version] * 2
    assert [after.head for after in seen] == [before] * 2
    assert store.load().catalog.version == applied.catalog.version == FIRST.version


def test_a_way_back_that_leads_elsewhere_is_not_gone(store: CatalogStore) -> None:
    store.publish(THIRD)
    message = rf"before {THIRD.version}, {SECOND.version} was current and not {FIRST.version}: .* roll back again"
    with pytest.raises(CatalogError, match=message):
        store.rollback(expected=FIRST.version)
    assert store.head().base == THIRD.version
    assert store.rollback(expected=SECOND.version) == store.head().base == SECOND.version
    assert store.rollback() == FIRST.version


def test_the_head_of_a_version_that_is_not_current(store: CatalogStore) -> None:
    assert store.head(SECOND.version) == store.head()
    assert store.head(FIRST.version) == store.load(FIRST.version).head
    with pytest.raises(CatalogError, match=f"{THIRD.version} is not in the store"):
        store.head(THIRD.version)
