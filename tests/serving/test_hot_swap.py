"""Catalogues and bundles that go live under load: no answer fails or mixes versions, and what was live is freed."""

import asyncio
import gc
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.errors import ChangeRefused, InvalidRequest, NotReady
from recall_service.serving.query import CacheMode
from recall_service.serving.swapping import catalog_keeper
from recall_service.serving.watchdog import FAILED_STEPS, Watchdog
from tests.rpc.fake_backend import until
from tests.serving.bundles import small_rows, write_model, write_toml
from tests.serving.forward_gate import ForwardGate
from tests.serving.stores import HATS, NEW, OLD, Operated, write_store_bundle

ITEMS = {catalog.version: frozenset(small_rows(first)[1]) for catalog, first in ((OLD, 0), (NEW, 100))}
NUM_SWAPS = 200


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A server's collector does not look at what was there when it began to serve: nothing may need it to be freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def remains_of(operated: Operated) -> list["weakref.ref[Any]"]:
    """What must be gone once nobody needs the default bundle's catalogue any more."""
    live = operated.registry.pin("")
    catalog = live.bundle.catalog
    return [weakref.ref(each) for each in (live, live.bundle.constraint, live.filters, catalog.trie.codes[-1])]


def alive(remains: list["weakref.ref[Any]"]) -> list[str]:
    return [type(each()).__name__ for each in remains if each() is not None]


@asynccontextmanager
async def asked_meanwhile(operated: Operated, num_callers: int) -> AsyncIterator[list[Any]]:
    """Answers to questions of all kinds, of so many callers at once, who ask as long as it lasts."""
    answers: list[Any] = []
    numbers = itertools.count()
    is_over = False

    async def ask() -> None:
        while not is_over:
            number = next(numbers)
            history = (f"item-{number % 40:03d}", f"item-{100 + number % 40}")
            kind: dict[str, Any] = [{}, {"filter": HATS}, {"exclude_history": True}][number % 3]
            answers.append(await operated.recall(history, num_items=5, beam_width=5, **kind))
            await asyncio.sleep(0.002)  # a cached answer waits for nothing, and the swaps have threads that want to run

    callers = [asyncio.create_task(ask()) for _ in range(num_callers)]
    try:
        yield answers
    finally:
        is_over = True
        await asyncio.gather(*callers)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20], ids=["no cache", "cache"])
async def test_swaps_under_load(tmp_path: Path, cache_bytes: int) -> None:
    """Every answer is of one version, the one it names, and nothing of what was live before stays."""
    write_store_bundle(tmp_path / "tiny", OLD, NEW)
    operated = Operated(tmp_path / "tiny", cache_bytes=cache_bytes)
    swapped = operated.operations
    all_remains = []
    async with asked_meanwhile(operated, 3) as answers:
        for number in range(NUM_SWAPS):
            all_remains.append(remains_of(operated))
            asked = len(answers)
            await swapped.activate_catalog("", (NEW, OLD)[number % 2].version)
            await until(lambda asked=asked: len(answers) > asked)
    versions = [answer.catalog_version for answer in answers]
    assert set(versions) == {OLD.version, NEW.version}
    for answer in answers:
        assert answer.item_ids
        assert set(answer.item_ids) <= ITEMS[answer.catalog_version]
        assert answer.unknown_history_items == 1  # each catalogue knows one of the two
    assert operated.observer.of("failed", "rejected") == []
    assert len(operated.observer.of("reloaded")) == NUM_SWAPS
    await until(lambda: sum(len(alive(remains)) for remains in all_remains) == 0)
    await operated.close()


async def test_a_request_ends_on_the_version_it_began_with_and_frees_it(
    operated: Operated, monkeypatch: pytest.MonkeyPatch, no_collector: None
) -> None:
    await operated.recall(filter=HATS)
    forwards = ForwardGate(operated.registry.pin("").bundle.model.hidden)
    await operated.operations.load_catalog("", NEW.version)
    monkeypatch.setattr(operated.registry.pin("").bundle.model, "hidden", forwards)
    remains = remains_of(operated)
    inside = asyncio.create_task(operated.recall(filter=HATS))
    await forwards.arrival(1)
    await operated.operations.activate_catalog("", NEW.version)
    assert len(alive(remains)) == 4
    later = asyncio.create_task(operated.recall())
    forwards.lift()
    assert (await inside).catalog_version == OLD.version
    assert (await later).catalog_version == NEW.version
    del inside
    await until(lambda: alive(remains) == [])


@pytest.mark.parametrize("change", ["activate", "update"])
async def test_what_nobody_asks_is_freed_at_once(operated: Operated, change: str, no_collector: None) -> None:
    """Neither an answer nor a probe nor the warm-up keeps it, on an engine that is idle ever after."""
    await operated.recall(filter=HATS)
    operated.registry.pin("").runner.probe(operated.registry.pin("").sample_search(4))
    remains = remains_of(operated)
    if change == "activate":
        await operated.operations.activate_catalog("", NEW.version)
    else:
        await operated.operations.apply_updates("", ItemUpdates((ItemUpsert("new", (3, 4, 5)),)))
    await until(lambda: alive(remains) == [])


async def test_an_engine_is_probed_with_what_is_live(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []

    async def on_change(healthy: bool) -> None:
        said.append(healthy)

    def lost(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    dog = Watchdog(operated.registry, stuck_step_seconds=5, on_change=on_change)
    with monkeypatch.context() as patch:
        patch.setattr(operated.registry.pin("").bundle.model, "hidden", lost)
        await asyncio.gather(*(operated.recall() for _ in range(FAILED_STEPS)), return_exceptions=True)
        while operated.registry.pin("").runner.failed_steps < FAILED_STEPS:
            await asyncio.gather(operated.recall(), return_exceptions=True)
        await dog.look()
        assert said == [False]
    await operated.operations.apply_updates("", ItemUpdates(removals=("item-001",)))
    await dog.look()
    await until(lambda: operated.registry.pin("").runner.failed_steps == 0)
    await dog.look()
    assert said == [False, True]


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "engine-tiny"]


async def test_a_bundle_is_reloaded_while_it_is_asked(operated: Operated, tmp_path: Path) -> None:
    """Another model, another prompt, a plain catalogue: answers are of the old bundle or the new one."""
    old = operated.registry.pin("").info
    before = await operated.recall(cache_mode=CacheMode.BYPASS)
    write_model(tmp_path / "tiny" / "model", seed=1)
    write_toml(tmp_path / "tiny", prompt={"max_history": 4})
    async with asked_meanwhile(operated, 3) as answers:
        await until(lambda: bool(answers))
        swap = await operated.operations.reload_bundle("tiny")
        await until(lambda: answers[-1].bundle_version == swap.info.version)
    assert swap.previous_version == old.version
    assert (swap.info.max_history, swap.info.catalog_version) == (4, OLD.version)
    assert operated.registry.infos == (swap.info,)
    assert {answer.bundle_version for answer in answers} == {old.version, swap.info.version}
    assert operated.observer.of("failed", "rejected") == []
    after = await operated.recall(cache_mode=CacheMode.BYPASS)
    assert after.scores.tolist() != before.scores.tolist()
    await until(lambda: len(engine_threads()) == 1)
    assert operated.observer.of("reloaded") == [("reloaded", "bundle", "ok")]
    assert operated.registry.load()["beam_rows_free"] == operated.registry.pin("").runner.engine.limits.max_rows
    await operated.operations.activate_catalog("", NEW.version)
    assert (await operated.recall()).catalog_version == NEW.version


async def test_what_is_larger_than_a_reloaded_bundle_allows_is_refused_by_it(
    operated: Operated, tmp_path: Path
) -> None:
    """It came in while the one before was live, which allowed that."""
    await operated.recall(num_items=40, beam_width=64)
    write_toml(tmp_path / "tiny", search={"max_beam_width": 16, "max_num_items": 12})
    await operated.operations.reload_bundle("")
    with pytest.raises(InvalidRequest) as caught:
        await operated.recall(num_items=40, beam_width=64)
    assert caught.value.violations == [
        ("num_items", "40; bundle tiny allows at most 12, and 0 means its default"),
        ("beam_width", "64; bundle tiny allows at most 16, and 0 means its default"),
    ]
    too_long = tuple([1] * (operated.registry.infos[0].max_prompt_tokens + 1))
    with pytest.raises(InvalidRequest, match=r"prompt.token_ids: \d+ token ids; bundle tiny takes at most \d+"):
        await operated.recall(None, prompt=too_long)
    assert (await operated.recall(num_items=12, beam_width=16)).beam_width == 16


async def test_the_old_engine_ends_with_its_last_request(
    operated: Operated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = operated.registry.pin("")
    model, forwards = old.bundle.model, ForwardGate(old.bundle.model.hidden)
    monkeypatch.setattr(model, "hidden", forwards)
    remains, version = remains_of(operated), old.info.version
    inside = asyncio.create_task(operated.recall())
    await forwards.arrival(1)
    write_model(tmp_path / "tiny" / "model", seed=1)
    del old
    await operated.operations.reload_bundle("")
    assert (await operated.recall()).bundle_version != version
    assert len(engine_threads()) == 2
    forwards.lift()
    assert (await inside).bundle_version == version
    del inside
    await until(lambda: len(engine_threads()) == 1)
    assert alive(remains) == []


async def test_an_engine_that_is_stuck_is_left_behind_by_a_reload(
    operated: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_keeper, "RETIRE_SECONDS", 0.1)
    monkeypatch.setattr("recall_service.serving.engine_runner.EngineRunner.stop.__defaults__", (0.1,))
    model = operated.registry.pin("").bundle.model
    forwards = ForwardGate(model.hidden)
    monkeypatch.setattr(model, "hidden", forwards)
    stuck = asyncio.create_task(operated.recall())
    await forwards.arrival(1)
    await operated.operations.reload_bundle("")
    assert len((await operated.recall()).item_ids) == 10
    with pytest.raises(NotReady, match="the engine is stopping"):
        await asyncio.wait_for(stuck, 5)
    forwards.lift()
    await until(lambda: len(engine_threads()) == 1)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda directory: (directory / "bundle.toml").write_text("[bundle"), "not readable as TOML"),
        (
            lambda directory: write_toml(directory, bundle={"name": "other"}),
            "'other', and 'tiny' is live",
        ),
        (lambda directory: write_toml(directory, search={"max_beam_width": 200}), "max_beam_width is 200, the setting"),
        (lambda directory: (directory / "model" / "config.json").unlink(), "config.json"),
        (lambda directory: write_toml(directory, catalog={"path": "gone"}), "catalog.path 'gone' does not exist"),
    ],
    ids=["toml", "name", "limits", "model", "catalogue"],
)
async def test_a_bundle_that_is_not_sound_is_not_reloaded(
    operated: Operated, tmp_path: Path, spoil: Any, message: str
) -> None:
    before = operated.registry.pin("")
    spoil(tmp_path / "tiny")
    with pytest.raises(ChangeRefused, match=message):
        await operated.operations.reload_bundle("")
    assert operated.registry.pin("") is before
    assert len((await operated.recall()).item_ids) == 10
    assert operated.observer.of("reloaded") == [("reloaded", "bundle", "failed")]
    assert len(engine_threads()) == 1


async def test_a_model_of_nan_does_not_go_live(operated: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    before = operated.registry.pin("")
    monkeypatch.setattr("recall_service.engine.models.decoder.Decoder.logits", _nan)
    with pytest.raises(ChangeRefused, match="its first search failed: the model's logits hold NaN"):
        await operated.operations.reload_bundle("")
    assert operated.registry.pin("") is before
    assert len(engine_threads()) == 1


def _nan(model: Any, hidden: Any, *_: Any) -> Any:
    return hidden.new_full((len(hidden), model.config.vocab_size), float("nan"))


async def test_an_end_in_the_middle_of_everything(operated: Operated, tmp_path: Path) -> None:
    changes = [
        asyncio.create_task(operated.operations.activate_catalog("", NEW.version)),
        asyncio.create_task(operated.operations.reload_bundle("")),
        asyncio.create_task(operated.operations.apply_updates("", ItemUpdates(removals=("item-001", "item-101")))),
    ]
    await asyncio.sleep(0.02)
    await operated.close()
    await asyncio.gather(*changes, return_exceptions=True)
    await until(lambda: engine_threads() == [])
