"""Whoever holds a snapshot ends up with what is live, whatever others did to the store meanwhile."""

import os
from pathlib import Path

import pytest

from item_catalog.errors import CatalogError
from item_catalog.updating.store import CatalogStore, Snapshot
from item_catalog.updating.store_state import StoreState
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from tests.item_catalog.small_stores import ADD_9, ONE, REMOVE_1, TWO, apply, ids_of, live


def add(item_id: int) -> ItemUpdates:
    """Of the same length in a log for every id of one digit, and a longer one for more."""
    return ItemUpdates((ItemUpsert(str(item_id), (3, 3)),))


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    return CatalogStore.create(tmp_path / "store", ONE)


def taken_back(store: CatalogStore, updates: ItemUpdates, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    """What a reader has who followed a batch that then could not be got onto the disk."""
    followed = []

    def fail(descriptor: int) -> None:
        followed.append(CatalogStore(store.path).load())
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(CatalogError, match="cannot be written: Input/output error"):
            apply(store, updates)
    return followed[0]


def test_the_number_of_a_log_never_comes_again(store: CatalogStore):
    """Or a snapshot from before would take what is in the new log for what was in the old one."""
    stale = apply(store, add(7))
    store.publish(TWO)
    store.prune(keep=0)
    store.publish(ONE)
    apply(store, add(8))
    assert store.head().log_bytes == stale.head.log_bytes
    assert ids_of(store.refresh(stale)) == ["1", "2", "8"]
    snapshot, _ = store.apply(REMOVE_1, stale)
    assert ids_of(snapshot) == live(store) == ["2", "8"]


@pytest.mark.parametrize("later", [[8], [123_456], [8, 9], [8, 123_456, 9]], ids=["as long", "longer", "two", "three"])
def test_a_batch_that_was_taken_back_is_forgotten(
    later: list[int], store: CatalogStore, monkeypatch: pytest.MonkeyPatch
):
    reader = taken_back(store, add(7), monkeypatch)
    assert ids_of(reader) == ["1", "2", "7"]
    for item_id in later:
        apply(store, add(item_id))
    expected = sorted(["1", "2", *map(str, later)])
    assert ids_of(store.refresh(reader)) == expected
    snapshot, _ = store.apply(REMOVE_1, reader)
    assert ids_of(snapshot) == live(store) == expected[1:]


def test_a_batch_that_was_taken_back_without_another(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    reader = taken_back(store, add(7), monkeypatch)
    assert ids_of(store.refresh(reader)) == ["1", "2"]


def test_a_log_pruned_between_two_looks_is_no_error(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    snapshot = apply(store, ADD_9)
    elsewhere = CatalogStore(store.path)
    read = StoreState.read

    def read_and_be_late(path: Path) -> StoreState:
        state = read(path)
        monkeypatch.undo()
        elsewhere.publish(TWO)
        elsewhere.prune(keep=0)
        return state

    monkeypatch.setattr(StoreState, "read", read_and_be_late)
    assert store.head().base == TWO.version
    store.publish(snapshot.catalog)
    monkeypatch.setattr(StoreState, "read", read_and_be_late)
    assert ids_of(store.refresh(snapshot)) == ["1", "2", "3"]
