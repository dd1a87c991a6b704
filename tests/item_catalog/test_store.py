"""A store holds what was published and every update since, for whoever opens it."""

import os
import shutil
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.storage import directory as storage
from item_catalog.updating.store import CatalogStore, Head, is_store
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from tests.item_catalog.small_stores import ADD_9, ONE, REMOVE_1, THREE, TWO, apply, catalog_of, files, ids_of, live


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    return CatalogStore.create(tmp_path / "store", ONE)


def test_a_new_store_holds_what_it_was_made_of(store: CatalogStore):
    snapshot = store.load()
    assert snapshot.catalog.version == ONE.version
    assert snapshot.head == store.head() == Head(ONE.version, 1)
    assert (store.previous(), is_store(store.path), is_store(store.path.parent)) == (None, True, False)
    assert isinstance(snapshot.catalog.item_offsets.base, np.memmap)


def test_updates_are_there_for_whoever_opens_the_store(store: CatalogStore):
    snapshot, applied = store.apply(ADD_9, store.load())
    assert (applied.added, snapshot.catalog) == (1, applied.catalog)
    again, _ = store.apply(REMOVE_1, snapshot)
    assert (ids_of(snapshot), ids_of(again)) == (["1", "2", "9"], ["2", "9"])
    assert live(store) == ["2", "9"]
    assert store.load().head == again.head == store.head()
    assert store.load().catalog.version == again.catalog.version != ONE.version


def test_what_changes_nothing_is_not_written(store: CatalogStore):
    before = store.load()
    snapshot, applied = store.apply(ItemUpdates(removals=("77",)), before)
    assert (snapshot, applied.unknown_removals, store.head().log_bytes) == (before, 1, 0)


def test_wrong_updates_change_nothing(store: CatalogStore):
    with pytest.raises(CatalogError, match=r"upserts\[0\]\.sid: 1 codes; give 2"):
        apply(store, ItemUpdates((ItemUpsert("9", (3,)),)))
    assert store.head().log_bytes == 0


def test_a_writer_catches_up_with_what_others_wrote(store: CatalogStore):
    mine = store.load()
    apply(CatalogStore(store.path), ADD_9)
    snapshot, _ = store.apply(REMOVE_1, mine)
    assert ids_of(snapshot) == live(store) == ["2", "9"]


def test_refresh_reads_only_what_is_new(store: CatalogStore):
    first = store.load()
    assert store.refresh(first) is first
    apply(store, ADD_9)
    second = store.refresh(first)
    assert ids_of(second) == ["1", "2", "9"]
    assert second.catalog.attributes["stock"] is not first.catalog.attributes["stock"]
    shutil.rmtree(store.path / "versions")
    assert store.refresh(second) is second


def test_refresh_follows_to_another_version_and_to_a_log_begun_anew(store: CatalogStore):
    snapshot = apply(store, ADD_9)
    store.publish(TWO)
    assert ids_of(store.refresh(snapshot)) == ["1", "2", "3"]
    store.publish(ONE)
    assert ids_of(store.refresh(snapshot)) == ["1", "2"]


def test_refresh_stops_before_a_torn_tail_and_apply_cuts_it_off(store: CatalogStore):
    snapshot = apply(store, ADD_9)
    (log,) = (store.path / "updates").iterdir()
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:20])
    assert store.refresh(snapshot) is snapshot
    assert store.load().head == snapshot.head
    snapshot, _ = store.apply(REMOVE_1, snapshot)
    assert log.read_bytes().startswith(whole)
    assert (store.head(), live(store)) == (snapshot.head, ["2", "9"])


def test_publish_and_roll_back_each_with_its_updates(store: CatalogStore):
    apply(store, ADD_9)
    store.publish(TWO)
    assert (live(store), store.previous()) == (["1", "2", "3"], ONE.version)
    apply(store, REMOVE_1)
    store.publish(THREE)
    assert store.rollback() == TWO.version
    assert live(store) == ["2", "3"]
    assert store.rollback() == ONE.version
    assert live(store) == ["1", "2", "9"]
    apply(store, ItemUpdates(removals=("2",)))
    assert live(store) == ["1", "9"]
    with pytest.raises(CatalogError, match=f"no version was current before {ONE.version}; activate one"):
        store.rollback()
    store.activate(TWO.version)
    assert (live(store), store.previous()) == (["2", "3"], ONE.version)


def test_publish_without_activating(store: CatalogStore):
    store.publish(TWO, activate=False)
    assert (live(store), store.previous()) == (["1", "2"], None)
    snapshot = store.load(TWO.version)
    assert ids_of(snapshot) == ["1", "2", "3"]
    store.activate(TWO.version)
    assert store.refresh(snapshot) is snapshot
    assert store.previous() == ONE.version


def test_publishing_what_is_current_changes_nothing_unless_it_had_updates(store: CatalogStore):
    before = files(store.path)
    store.publish(ONE)
    store.activate(ONE.version)
    assert files(store.path) == before
    apply(store, ADD_9)
    store.publish(ONE, activate=False)
    assert live(store) == ["1", "2", "9"]
    store.publish(ONE)
    assert live(store) == ["1", "2"]
    store.rollback()
    assert live(store) == ["1", "2", "9"]


def test_compaction_changes_no_content_and_leaves_no_updates(store: CatalogStore):
    store.publish(TWO)
    snapshot = apply(store, ADD_9)
    compacted = store.compact(snapshot)
    assert compacted.catalog is snapshot.catalog
    assert compacted.head == store.head() == Head(snapshot.catalog.version, 3)
    assert live(store) == ["1", "2", "3", "9"]
    assert store.compact(compacted) is compacted
    assert store.previous() == ONE.version
    apply(store, REMOVE_1)
    assert live(store) == ["2", "3", "9"]


def test_compaction_to_a_version_that_has_had_updates(store: CatalogStore):
    """Content that was published before comes back by updates; what it was updated with then stays away."""
    snapshot = apply(store, ADD_9)
    store.publish(snapshot.catalog)
    apply(store, REMOVE_1)
    store.rollback()
    compacted = store.compact(store.load())
    assert ids_of(compacted) == live(store) == ["1", "2", "9"]
    assert store.head().log == 3


def test_updates_during_compaction_stay(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    snapshot = apply(store, ADD_9)
    save = storage.save_catalog

    def save_while_others_write(catalog: Catalog, path: Path) -> None:
        apply(CatalogStore(store.path), REMOVE_1)
        save(catalog, path)

    monkeypatch.setattr("item_catalog.updating.store_files.save_catalog", save_while_others_write)
    compacted = store.compact(snapshot)
    assert ids_of(compacted) == live(store) == ["2", "9"]
    assert compacted.head == store.head()
    assert compacted.head.base == snapshot.catalog.version


def test_a_version_published_during_compaction_wins(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    snapshot = apply(store, ADD_9)
    store.publish(TWO, activate=False)
    save = storage.save_catalog

    def save_while_others_activate(catalog: Catalog, path: Path) -> None:
        store.activate(TWO.version)
        save(catalog, path)

    monkeypatch.setattr("item_catalog.updating.store_files.save_catalog", save_while_others_activate)
    assert ids_of(store.compact(snapshot)) == live(store) == ["1", "2", "3"]
    assert sorted(os.listdir(store.path / "versions")) == sorted([ONE.version, TWO.version])


def test_prune_keeps_what_is_asked_for(store: CatalogStore):
    apply(store, ADD_9)
    store.publish(TWO)
    store.publish(catalog_of(5), activate=False)
    store.publish(THREE)
    assert store.prune(keep=2) == [catalog_of(5).version]
    assert store.prune(keep=1) == [ONE.version]
    assert [stored.version for stored in store.versions()] == [TWO.version, THREE.version]
    assert len(list((store.path / "updates").iterdir())) == 2
    assert store.rollback() == TWO.version
    assert store.prune(keep=0) == [THREE.version]
    assert (live(store), store.previous()) == (["1", "2", "3"], None)


def test_versions_tell_what_is_there(store: CatalogStore):
    apply(store, ADD_9)
    store.publish(TWO)
    one, two = store.versions()
    assert (one.version, one.is_current, one.num_items, one.num_sids) == (ONE.version, False, 2, 2)
    assert (one.update_bytes > 0, two.update_bytes, two.is_current) == (True, 0, True)
    assert two.array_bytes > TWO.trie.codes[0].nbytes


def test_a_version_pruned_while_it_is_loaded_is_no_error(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    open_catalog = storage.open_catalog
    elsewhere = CatalogStore(store.path)

    def open_after_pruning(path: Path, verify: bool = True) -> Catalog:
        monkeypatch.undo()
        elsewhere.publish(TWO)
        elsewhere.prune(keep=0)
        return open_catalog(path, verify)

    monkeypatch.setattr("item_catalog.updating.store.open_catalog", open_after_pruning)
    assert ids_of(store.load()) == ["1", "2", "3"]


def test_writers_take_turns(store: CatalogStore):
    def add(first: int) -> None:
        own, snapshot = CatalogStore(store.path), store.load()
        for number in range(first, first + 10):
            snapshot, _ = own.apply(ItemUpdates((ItemUpsert(str(number), (0, 0)),)), snapshot)

    threads = [Thread(target=add, args=(first,)) for first in (100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    added = [str(first + number) for first in (100, 200, 300) for number in range(10)]
    assert live(store) == sorted(["1", "2", *added])
