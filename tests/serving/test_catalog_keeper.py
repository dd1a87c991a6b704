"""Catalogue versions that go live while a bundle serves, and what keeps them from it."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.engine.request import Demand
from recall_service.errors import ChangeRefused, InvalidRequest, NotReady, Overloaded, UnknownVersion
from recall_service.serving.admission_gate import Place
from recall_service.serving.bundles.live_bundle import LiveBundle
from tests.serving.bundles import small_catalog, write_bundle
from tests.serving.stores import HATS, NEW, OLD, Operated, in_store, shop_catalog, write_store_bundle


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


@pytest.mark.parametrize("error", [CatalogError("No space left on device"), OSError("Input/output error")], ids=str)
async def test_when_the_store_cannot_be_written_the_old_version_stays_live(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    def broken(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(CatalogStore, "activate", broken)
        with pytest.raises((ChangeRefused, OSError), match=str(error)):
            await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == in_store(tmp_path) == OLD.version
    assert [call[2] for call in operated.observer.of("catalog")] == [OLD.version]
    assert operated.observer.of("reloaded") == [("reloaded", "catalog", "failed")]
    await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == in_store(tmp_path) == NEW.version


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


async def test_a_version_goes_live_on_an_engine_that_is_full(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Demand) -> Place:
        raise Overloaded("the queue is full", retry_after_seconds=60.0)

    monkeypatch.setattr(operated.registry.pin("").runner.gate, "enter", refuse)
    await operated.operations.activate_catalog("", NEW.version)
    await operated.operations.rollback_catalog("")
    assert operated.version == OLD.version
    assert [call[2] for call in operated.observer.of("catalog")] == [OLD.version, NEW.version, OLD.version]


async def test_a_version_whose_search_fails_does_not_go_live(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nan(model: Any, hidden: Any, *_: Any) -> Any:
        return hidden.new_full((len(hidden), model.config.vocab_size), float("nan"))

    monkeypatch.setattr("recall_service.engine.models.decoder.Decoder.logits", nan)
    with pytest.raises(ChangeRefused) as caught:
        await operated.operations.activate_catalog("", NEW.version)
    assert str(caught.value).startswith("bundle tiny: its first search failed: the model's logits hold NaN")
    assert operated.version == in_store(tmp_path) == OLD.version


async def test_an_engine_that_is_of_no_use_makes_nothing_ready(operated: Operated, tmp_path: Path) -> None:
    operated.registry.pin("").runner.refuse("the engine is stuck")
    with pytest.raises(NotReady, match="the engine is stuck"):
        await operated.operations.activate_catalog("", NEW.version)
    assert operated.version == in_store(tmp_path) == OLD.version


async def test_what_is_live_is_not_read_again(
    operated: Operated, store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await operated.operations.load_catalog("", NEW.version)
    before = operated.registry.pin("")
    monkeypatch.setattr(CatalogStore, "load", lambda *_: pytest.fail("it is read again"))
    assert (await operated.operations.load_catalog("", "")).version == OLD.version
    assert (await operated.operations.activate_catalog("", OLD.version)).previous_version == OLD.version
    assert operated.registry.pin("") is before


async def test_a_version_goes_live_with_all_that_it_has_in_the_store(operated: Operated, store: CatalogStore) -> None:
    await operated.operations.load_catalog("", NEW.version)
    store.activate(NEW.version)
    _, applied = store.apply(ItemUpdates(removals=("item-101",)), store.load())
    store.activate(OLD.version)
    await operated.operations.activate_catalog("", NEW.version)
    assert [call[2] for call in operated.observer.of("catalog")] == [OLD.version, applied.catalog.version]


async def test_a_way_back_that_has_changed_meanwhile_is_not_gone(
    operated: Operated, store: CatalogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else activates a third version while the one before is made ready here."""
    third = shop_catalog(200)
    store.publish(third, activate=False)
    await operated.operations.activate_catalog("", NEW.version)
    warm_up = LiveBundle.warm_up

    async def warm_up_slowly(live: LiveBundle) -> None:
        store.activate(third.version)
        await warm_up(live)

    monkeypatch.setattr(LiveBundle, "warm_up", warm_up_slowly)
    with pytest.raises(ChangeRefused, match=rf"{NEW.version} was current and not {OLD.version}: .* roll back again"):
        await operated.operations.rollback_catalog("")
    assert operated.version == NEW.version
    assert store.head().base == third.version
