"""Item updates that go live while a bundle serves: durable before they are answered, or refused as a whole."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.filtering.filters import Filter, IsIn
from item_catalog.sid import SidLayout
from item_catalog.updating.apply import apply_updates
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.errors import ChangeRefused, InvalidRequest
from recall_service.serving import filter_cache
from tests.rpc.fake_backend import until
from tests.serving.stores import HATS, NEW, OLD, Operated, in_store, write_store_bundle


async def test_updates_that_change_nothing_change_nothing(operated: Operated) -> None:
    before = operated.registry.pin("")
    done = await operated.operations.apply_updates("", ItemUpdates((ItemUpsert("item-000"),), ("item-999",)))
    assert (done.catalog.version, done.changed, done.unknown_removals) == (OLD.version, 1, 1)
    assert operated.registry.pin("") is before


async def test_updates_are_live_and_durable_once_they_are_answered(operated: Operated, tmp_path: Path) -> None:
    updates = ItemUpdates(
        (ItemUpsert("new", (3, 4, 5), {"kind": "shoe"}), ItemUpsert("item-007", (0, 0, 0)), ItemUpsert("item-008")),
        ("item-009", "item-999"),
    )
    done = await operated.operations.apply_updates("", updates)
    assert (done.added, done.changed, done.removed, done.unknown_removals) == (1, 2, 1, 1)
    expected = apply_updates(OLD, updates).catalog.version
    assert done.catalog.version == operated.version == in_store(tmp_path) == expected
    answer = await operated.recall(num_items=64, beam_width=64)
    assert "new" in answer.item_ids
    assert "item-009" not in answer.item_ids
    assert answer.catalog_version == expected
    assert operated.observer.of("reloaded") == [("reloaded", "catalog", "ok")]


async def test_a_change_of_attributes_alone_keeps_the_trie_on_its_device(operated: Operated) -> None:
    before = operated.registry.pin("").bundle.constraint
    await operated.recall(filter=HATS)
    await operated.operations.apply_updates("", ItemUpdates((ItemUpsert("item-000", None, {"kind": "hat"}),)))
    after = operated.registry.pin("")
    assert after.bundle.constraint is before
    await until(lambda: after.filters.recent() == [HATS.canonical()])  # behind the change, for the next who asks
    assert "item-000" in (await operated.recall(filter=HATS, num_items=64, beam_width=64)).item_ids


async def test_everything_that_a_catalogue_cannot_take_of_updates_is_said(operated: Operated, tmp_path: Path) -> None:
    upserts = (ItemUpsert("new"), ItemUpsert("item-001", (0, 0)), ItemUpsert("item-002", None, {"price": 1.0}))
    with pytest.raises(InvalidRequest) as caught:
        await operated.operations.apply_updates("", ItemUpdates(upserts))
    assert [violation.field for violation in caught.value.violations] == [
        "upserts[0].sid",
        "upserts[1].sid",
        "upserts[2].attributes.price",
    ]
    assert operated.version == in_store(tmp_path) == OLD.version
    assert operated.observer.of("reloaded") == []


async def test_filters_in_use_are_worked_out_behind_updates_in_their_order(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the catalogue changes before that is done."""
    filters = [Filter((IsIn("kind", (kind,)),)) for kind in ("hat", "shoe", "cap")]
    for wanted in filters:
        await operated.recall(filter=wanted)
    expected = [wanted.canonical() for wanted in reversed(filters)]
    held, worked_out = threading.Event(), filter_cache.live_set

    def work_out_slowly(*arguments: Any) -> Any:
        held.wait(10)
        return worked_out(*arguments)

    monkeypatch.setattr(filter_cache, "live_set", work_out_slowly)
    for item_id in ("item-001", "item-002", "item-003"):
        await operated.operations.apply_updates("", ItemUpdates(removals=(item_id,)))
        await asyncio.sleep(0.01)
    held.set()
    await until(lambda: len(operated.observer.of("filter_resolved")) == 6)
    assert operated.registry.pin("").filters.recent() == expected
    await operated.recall(filter=filters[0])
    assert operated.observer.of("filter_resolved")[6:] == [("filter_resolved", "hit")]


class Poisoned:
    """A bundle over two items, and another in its store whose code 6 the model has no token for."""

    def __init__(self, directory: Path) -> None:
        layout = SidLayout((4, 5, 7))
        self.sound = build_catalog(layout, np.array([[0, 0, 0], [1, 1, 1]]), ["item-000", "item-001"])
        self.store = write_store_bundle(directory, self.sound)
        self.operated = Operated(directory)

    def poison(self) -> None:
        """As item-catalog apply does, which knows no tokens."""
        self.store.apply(ItemUpdates((ItemUpsert("bad", (0, 0, 6)),)), self.store.load())


@pytest.fixture
async def poisoned(tmp_path: Path) -> AsyncIterator[Poisoned]:
    poisoned = Poisoned(tmp_path / "tiny")
    yield poisoned
    await poisoned.operated.close()


async def test_updates_heal_what_others_wrote(poisoned: Poisoned) -> None:
    poisoned.poison()
    before, operations = poisoned.store.head(), poisoned.operated.operations
    with pytest.raises(ChangeRefused, match=r"bundle tiny: sid.tokens\[2\]: '<c_6>' is no token of the model; give"):
        await operations.apply_updates("", ItemUpdates((ItemUpsert("item-001", (2, 2, 2)),)))
    assert poisoned.store.head() == before
    assert poisoned.operated.version == poisoned.sound.version
    done = await operations.apply_updates("", ItemUpdates(removals=("bad",)))
    assert (done.removed, done.catalog.version) == (1, poisoned.sound.version)
    assert poisoned.operated.head == poisoned.store.head()


async def test_updates_that_cannot_go_live_are_not_durable(poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's make it so, between a look at the store and the write to it."""
    apply = CatalogStore.apply

    def apply_late(store: CatalogStore, *arguments: Any) -> Any:
        monkeypatch.undo()
        poisoned.poison()
        return apply(store, *arguments)

    monkeypatch.setattr(CatalogStore, "apply", apply_late)
    with pytest.raises(ChangeRefused, match="'<c_6>' is no token of the model"):
        await poisoned.operated.operations.apply_updates("", ItemUpdates((ItemUpsert("mine", (2, 2, 2)),)))
    assert poisoned.store.load().catalog.find(["mine", "bad"]).tolist()[0] == -1
    assert poisoned.operated.version == poisoned.sound.version


async def test_updates_to_a_version_that_is_not_live_are_refused(
    operated: Operated, store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = CatalogStore.apply

    def apply_late(*arguments: Any) -> Any:
        store.activate(NEW.version)
        return apply(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(CatalogStore, "apply", apply_late)
        with pytest.raises(ChangeRefused, match=rf"version {NEW.version} has become current .* ask again"):
            await operated.operations.apply_updates("", ItemUpdates(removals=("item-101",)))
    assert store.load().catalog.version == NEW.version
    done = await operated.operations.apply_updates("", ItemUpdates(removals=("item-101",)))
    assert (done.removed, done.catalog.version) == (1, operated.version)
