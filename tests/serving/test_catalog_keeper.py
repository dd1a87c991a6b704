"""Catalogue versions that go live while a bundle serves, and what keeps them from it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from item_catalog.apply import apply_updates
from item_catalog.builder import build_catalog
from item_catalog.errors import CatalogError
from item_catalog.filters import Filter, IsIn
from item_catalog.sid import SidLayout
from item_catalog.store import CatalogStore
from item_catalog.updates import ItemUpdates, ItemUpsert
from recall_service.engine.request import Demand
from recall_service.errors import ChangeRefused, InvalidRequest, Overloaded, UnknownVersion
from recall_service.serving import catalog_keeper, store_watch
from recall_service.serving.admission_gate import Place
from recall_service.serving.bundle import load_bundle
from tests.rpc.fake_backend import until
from tests.serving.bundles import small_catalog, write_bundle
from tests.serving.stores import Operated, shop_catalog, write_store_bundle

HATS = Filter((IsIn("kind", ("hat",)),))
OLD, NEW = shop_catalog(), shop_catalog(100)


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    """Holds OLD, which is current, and NEW."""
    return write_store_bundle(tmp_path / "tiny", OLD, NEW)


@pytest.fixture
async def operated(store: CatalogStore, tmp_path: Path) -> AsyncIterator[Operated]:
    operated = Operated(tmp_path / "tiny")
    yield operated
    await operated.close()


def in_store(tmp_path: Path) -> str:
    """What a server that starts now would serve."""
    return load_bundle(tmp_path / "tiny").catalog.version


async def test_a_version_goes_live_and_back(operated: Operated, tmp_path: Path) -> None:
    assert operated.version == OLD.version
    before = await operated.recall()
    swap = await operated.operations.activate_catalog("", NEW.version)
    assert swap.previous_version == OLD.version
    assert swap.catalog == ("tiny", NEW.version, NEW.num_items, NEW.trie.num_leaves)
    after = await operated.recall()
    assert (before.catalog_version, after.catalog_version) == (OLD.version, NEW.version)
    assert not set(before.item_ids) & set(after.item_ids)
    assert {int(item_id[5:]) // 100 for item_id in after.item_ids} == {1}
    assert in_store(tmp_path) == NEW.version
    assert operated.registry.infos[0].catalog_version == NEW.version
    back = await operated.operations.rollback_catalog("tiny")
    assert (back.catalog.version, back.previous_version) == (OLD.version, NEW.version)
    assert (await operated.recall()).item_ids == before.item_ids
    assert in_store(tmp_path) == OLD.version
    assert operated.observer.of("reloaded") == [("reloaded", "catalog", "ok")] * 2
    assert [call[2] for call in operated.observer.of("catalog")] == [OLD.version, NEW.version, OLD.version]


async def test_a_version_that_is_ready_is_not_read_again(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = await operated.operations.load_catalog("", NEW.version)
    assert loaded.version == NEW.version
    assert operated.version == OLD.version
    monkeypatch.setattr(CatalogStore, "load", lambda *_: pytest.fail("it is read again"))
    await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == NEW.version


async def test_the_current_version_is_what_an_empty_name_loads(operated: Operated) -> None:
    assert (await operated.operations.load_catalog("", "")).version == OLD.version


async def test_filters_in_use_are_worked_out_before_another_version_goes_live(operated: Operated) -> None:
    await operated.recall(filter=HATS)
    await operated.operations.activate_catalog("", NEW.version)
    assert operated.registry.pin("").filters.recent() == [HATS.canonical()]
    before = len(operated.observer.of("filter_resolved"))
    await operated.recall(filter=HATS)
    assert operated.observer.of("filter_resolved")[before:] == [("filter_resolved", "hit")]


@pytest.mark.parametrize("change", ["load_catalog", "activate_catalog"])
async def test_a_version_that_the_store_does_not_have(operated: Operated, change: str) -> None:
    with pytest.raises(UnknownVersion, match=r"version: 'never' is not in the store; it has .*" + NEW.version):
        await getattr(operated.operations, change)("", "never")
    with pytest.raises(UnknownVersion, match="bundle 'nobody' is not served here"):
        await getattr(operated.operations, change)("nobody", NEW.version)
    assert operated.version == OLD.version
    assert operated.observer.of("reloaded") == []


@pytest.mark.parametrize("part", ["manifest.json", "item_offsets.npy"])
async def test_a_damaged_version_is_refused(operated: Operated, tmp_path: Path, part: str) -> None:
    file = tmp_path / "tiny" / "catalog" / "versions" / NEW.version / part
    content = bytearray(file.read_bytes())
    content[-3] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(ChangeRefused, match=rf"bundle tiny: .*{part}: "):
        await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == in_store(tmp_path) == OLD.version
    assert len((await operated.recall()).item_ids) == 10


async def test_a_version_that_was_ready_goes_live_with_what_came_to_it_since(
    operated: Operated, store: CatalogStore
) -> None:
    await operated.operations.load_catalog("", OLD.version)
    done = await operated.operations.apply_updates("", ItemUpdates(removals=("item-001",)))
    await operated.operations.activate_catalog("", NEW.version)
    await operated.operations.load_catalog("", OLD.version)
    await operated.operations.rollback_catalog("")
    assert operated.version == done.catalog.version
    assert store.head().log_bytes > 0


async def test_updates_that_change_nothing_change_nothing(operated: Operated) -> None:
    before = operated.registry.pin("")
    done = await operated.operations.apply_updates("", ItemUpdates((ItemUpsert("item-000"),), ("item-999",)))
    assert (done.catalog.version, done.changed, done.unknown_removals) == (OLD.version, 1, 1)
    assert operated.registry.pin("") is before


async def test_without_a_version_before_there_is_no_way_back(operated: Operated) -> None:
    with pytest.raises(ChangeRefused, match=r"bundle tiny: no version was current before this one; activate one"):
        await operated.operations.rollback_catalog("")


async def test_other_codebooks_are_refused(operated: Operated, store: CatalogStore) -> None:
    sids = np.array([[0, 0, 0, 0], [1, 1, 1, 1]])
    strange = build_catalog(SidLayout((4, 5, 6, 2)), sids, ["a", "b"])
    store.publish(strange, activate=False)
    with pytest.raises(ChangeRefused, match=r"codebooks \(4, 5, 6, 2\); those of bundle tiny are \(4, 5, 6\)"):
        await operated.operations.activate_catalog("", strange.version)
    assert operated.version == OLD.version
    assert len((await operated.recall()).item_ids) == 10
    assert operated.observer.of("reloaded") == [("reloaded", "catalog", "failed")]


async def test_a_code_without_a_token_is_refused_before_it_is_durable(tmp_path: Path) -> None:
    layout = SidLayout((4, 5, 7))  # the tokenizer has no <c_6>
    sound = build_catalog(layout, np.array([[0, 0, 0], [1, 1, 1]]), ["item-000", "item-001"])
    unsound = build_catalog(layout, np.array([[0, 0, 0], [1, 1, 6]]), ["item-000", "item-001"])
    write_store_bundle(tmp_path / "tiny", sound, unsound)
    operated = Operated(tmp_path / "tiny")
    with pytest.raises(ChangeRefused, match=r"sid.tokens\[2\]: '<c_6>' is no token of the model"):
        await operated.operations.activate_catalog("", unsound.version)
    with pytest.raises(InvalidRequest, match=r"upserts\[0\].sid\[2\]: 6; the model has no token for it"):
        await operated.operations.apply_updates("", ItemUpdates((ItemUpsert("new", (0, 0, 6)),)))
    assert operated.version == in_store(tmp_path) == sound.version
    await operated.close()


async def test_when_the_store_cannot_be_written_the_old_version_goes_live_again(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise CatalogError("store/CURRENT.json: cannot be written: No space left on device")

    monkeypatch.setattr(CatalogStore, "activate", full)
    with pytest.raises(ChangeRefused, match=rf"No space left on device; version {OLD.version} is live again"):
        await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == in_store(tmp_path) == OLD.version
    assert operated.observer.of("catalog")[-1][2] == OLD.version
    monkeypatch.undo()
    await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == NEW.version


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


async def test_a_catalogue_that_is_in_no_store_does_not_change(tmp_path: Path) -> None:
    operated = Operated(write_bundle(tmp_path / "plain"))
    changes = operated.operations
    for change in (
        partial(changes.load_catalog, "", ""),
        partial(changes.activate_catalog, "", NEW.version),
        partial(changes.rollback_catalog, ""),
        partial(changes.apply_updates, "", ItemUpdates(removals=("item-001",))),
    ):
        with pytest.raises(ChangeRefused, match=r"bundle tiny: its catalogue is no store, .*item-catalog publish"):
            await change()
    assert operated.version == small_catalog().version
    changes.watch(0.01)
    await asyncio.sleep(0.05)
    assert operated.observer.of("reloaded") == []
    await operated.close()


async def test_a_change_is_carried_through_when_whoever_asked_leaves(operated: Operated) -> None:
    asked = asyncio.create_task(operated.operations.activate_catalog("", NEW.version))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await until(lambda: operated.version == NEW.version)


def publish(store: CatalogStore) -> str:
    store.activate(NEW.version)
    return NEW.version


def update(store: CatalogStore) -> str:
    _, applied = store.apply(ItemUpdates(removals=("item-001",)), store.load())
    return applied.catalog.version


def compact(store: CatalogStore) -> str:
    store.compact(store.load())
    return OLD.version


@pytest.mark.parametrize("change", [publish, update, compact])
async def test_what_others_do_to_the_store_goes_live(
    operated: Operated, store: CatalogStore, change: Callable[[CatalogStore], str]
) -> None:
    operated.operations.watch(0.01)
    version = await asyncio.to_thread(change, store)
    await until(lambda: operated.version == version)
    assert (await operated.recall()).catalog_version == version
    done = await operated.operations.apply_updates("", ItemUpdates(removals=("item-003", "item-103")))
    assert done.removed == 1


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
        patch.setattr(CatalogStore, "refresh", damaged)
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


async def test_warming_up_comes_back_to_an_engine_that_is_full(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = operated.registry.pin("").runner.gate
    enter, num_refused = gate.enter, 0

    def refuse_twice(demand: Demand) -> Place:
        nonlocal num_refused
        if num_refused == 2:
            return enter(demand)
        num_refused += 1
        raise Overloaded("the queue is full", retry_after_seconds=0.01)

    monkeypatch.setattr(gate, "enter", refuse_twice)
    await operated.operations.activate_catalog("", NEW.version)
    assert (operated.version, num_refused) == (NEW.version, 2)


async def test_an_engine_that_stays_full_lets_nothing_new_go_live(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Demand) -> Place:
        raise Overloaded("the queue is full", retry_after_seconds=0.02)

    monkeypatch.setattr(catalog_keeper, "WARM_UP_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(operated.registry.pin("").runner.gate, "enter", refuse)
    with pytest.raises(ChangeRefused, match="its first search failed: the queue is full"):
        await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == OLD.version
