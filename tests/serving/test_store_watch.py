"""What others do to a catalogue's store, followed while the bundle serves."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from item_catalog.errors import CatalogError
from item_catalog.updating.apply import apply_updates
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates
from recall_service.serving.swapping import store_watch
from tests.rpc.fake_backend import until
from tests.serving.stores import NEW, OLD, Operated


def publish(store: CatalogStore) -> str:
    store.activate(NEW.version)
    return NEW.version


def update(store: CatalogStore) -> str:
    _, applied = store.apply(ItemUpdates(removals=("item-002",)), store.load())
    return applied.catalog.version


@pytest.mark.parametrize("change", [publish, update])
async def test_what_others_do_to_the_store_goes_live(
    operated: Operated, store: CatalogStore, change: Callable[[CatalogStore], str]
) -> None:
    operated.operations.watch(0.01)
    version = await asyncio.to_thread(change, store)
    await until(lambda: operated.version == version)
    assert (await operated.recall()).catalog_version == version
    done = await operated.operations.apply_updates("", ItemUpdates(removals=("item-003", "item-103")))
    assert done.removed == 1


async def test_a_compaction_is_followed(operated: Operated, store: CatalogStore) -> None:
    """The content stays, and what comes after it is in another log."""
    done = await operated.operations.apply_updates("", ItemUpdates(removals=("item-001",)))
    compacted = store.compact(store.load())
    assert compacted.head.base == done.catalog.version != OLD.version
    operated.operations.watch(0.01)
    await until(lambda: operated.head == compacted.head)
    assert operated.version == done.catalog.version
    await asyncio.to_thread(update, store)
    await until(lambda: operated.head == store.head())


async def test_a_version_that_is_ready_is_what_is_followed_to(
    operated: Operated, store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await operated.operations.load_catalog("", NEW.version)
    monkeypatch.setattr(CatalogStore, "load", lambda *_: pytest.fail("it is read again"))
    operated.operations.watch(0.01)
    store.activate(NEW.version)
    await until(lambda: operated.version == NEW.version)


async def test_two_replicas_follow_each_other(operated: Operated, tmp_path: Path) -> None:
    other = Operated(tmp_path / "tiny")
    for each in (operated, other):
        each.operations.watch(0.01)
    await operated.operations.apply_updates("", ItemUpdates(removals=("item-001",)))
    await other.operations.apply_updates("", ItemUpdates(removals=("item-002",)))
    expected = apply_updates(OLD, ItemUpdates(removals=("item-001", "item-002"))).catalog.version
    await until(lambda: operated.version == other.version == expected)
    await operated.operations.activate_catalog("", NEW.version)
    await until(lambda: other.version == NEW.version)
    await other.operations.rollback_catalog("")
    await until(lambda: operated.version == expected)
    await other.close()


async def test_what_cannot_be_followed_is_said_once_and_tried_again(
    operated: Operated, store: CatalogStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_watch, "_MOST_SECONDS_BETWEEN_TRIES", 0.02)

    def damaged(*_: Any) -> None:
        raise CatalogError("versions/x/manifest.json: its checksum is wrong")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(CatalogStore, "load", damaged)
        operated.operations.watch(0.01)
        await asyncio.to_thread(store.activate, NEW.version)
        await until(lambda: len(operated.observer.of("reloaded")) >= 3)
        assert operated.version == OLD.version
        assert len((await operated.recall()).item_ids) == 10
    assert set(operated.observer.of("reloaded")[:3]) == {("reloaded", "catalog", "failed")}
    said = [record.getMessage() for record in caplog.records if "its checksum is wrong" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("bundle tiny: ")
    await until(lambda: operated.version == NEW.version)
