"""Which bundles go live, and what keeps one from it."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import BundleError, NotReady, SetupError, UnknownVersion
from recall_service.serving.bundles import registry as registry_module
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.hooks import NullObserver
from tests.engine.driving import assert_all_free
from tests.serving.bundles import FILTER_CACHE_BYTES, LIMITS, write_bundle, write_toml
from tests.serving.forward_gate import ForwardGate

LAUNCH = Launch(LIMITS, NullObserver(), FILTER_CACHE_BYTES)


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("bundles")
    return [
        write_bundle(root / "first", bundle={"name": "first"}),
        write_bundle(root / "second", seed=1, first_item=100, bundle={"name": "second"}),
    ]


@pytest.fixture
def registry(directories: list[Path]) -> Iterator[Registry]:
    registry = open_registry(directories, "second", LAUNCH)
    yield registry
    registry.close()


def test_the_default_bundle_comes_first(registry: Registry) -> None:
    assert [info.name for info in registry.infos] == ["second", "first"]
    assert registry.pin("") is registry.pin("second")
    assert registry.pin("first").info.name == "first"
    with pytest.raises(UnknownVersion, match=r"bundle 'third' is not served here; served are second, first"):
        registry.pin("third")


def test_without_a_default_the_first_directory_is_it(directories: list[Path]) -> None:
    registry = open_registry(directories, "", LAUNCH)
    assert registry.pin("").info.name == "first"
    registry.close()


async def test_warm_up_leaves_the_engines_idle(registry: Registry) -> None:
    """It asks for the widest beam after the longest history, so it proves that both fit."""
    idle = registry.load()
    for live in registry:
        await live.warm_up()
    warm = registry.load()
    assert {name for name in idle if warm[name] != idle[name]} == {"context_pages_cached", "context_pages_free"}
    assert warm["context_pages_cached"] + warm["context_pages_free"] == idle["context_pages_free"]
    for live in registry:
        assert_all_free(live.runner.engine)
    assert idle["beam_rows_free"] == 2 * LIMITS.max_rows
    assert idle["context_pages_free"] == 2 * LIMITS.context_pages
    assert idle["queue_depth"] == idle["inflight_requests"] == idle["beam_rows_used"] == idle["context_pages_used"] == 0


@pytest.mark.parametrize(
    ("limits", "parts"),
    [
        (replace(LIMITS, max_rows=63), ["bundle first", "search.max_beam_width is 64", "max_rows is 63", "raise"]),
        (
            replace(LIMITS, max_prompt_tokens=18),
            ["bundle first", "prompt.max_history 6 makes 19 tokens", "max_prompt_tokens is 18", "lower max_history"],
        ),
    ],
    ids=["rows", "prompt"],
)
def test_limits_that_do_not_carry_a_bundle(directories: list[Path], limits: EngineLimits, parts: list[str]) -> None:
    with pytest.raises(BundleError) as caught:
        open_registry(directories, "", Launch(limits, NullObserver(), FILTER_CACHE_BYTES))
    assert [part for part in parts if part not in str(caught.value)] == []


def test_a_row_budget_that_the_engine_has_no_room_for(tmp_path: Path) -> None:
    """Three levels: two slots for each of 128 rows, and the prompt."""
    directory = write_bundle(tmp_path / "lavish", search={"proven_row_budget": 258})
    message = r"search.proven_row_budget is 258, .* max_rows at 128 .* 257; raise .* lower"
    with pytest.raises(BundleError, match=message):
        open_registry([directory], "", LAUNCH)


@pytest.mark.parametrize(
    ("chosen", "default", "message"),
    [
        ([], "", "bundles: none given; name at least one bundle directory"),
        ([0, 0], "", "another bundle is called 'first'; rename one"),
        ([0, 1], "third", "default_bundle: 'third' is none of first, second; correct it"),
    ],
    ids=["none", "one name twice", "unknown default"],
)
def test_bundles_that_do_not_go_together(
    directories: list[Path], chosen: list[int], default: str, message: str
) -> None:
    with pytest.raises(BundleError, match=message):
        open_registry([directories[place] for place in chosen], default, LAUNCH)


def test_a_broken_catalogue_is_a_setup_error(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path / "broken")
    (directory / "catalog" / "manifest.json").write_text("{}")
    with pytest.raises(SetupError, match=r"manifest.json: format_version: None"):
        open_registry([directory], "", LAUNCH)
    write_toml(directory, catalog={"path": "catalog/manifest.json"})
    with pytest.raises(SetupError, match=r"manifest.json"):
        open_registry([directory], "", LAUNCH)


async def test_several_stuck_engines_are_left_behind_as_soon_as_one(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "STOP_SECONDS", 1.5)
    warm_ups, stuck = [], []
    for live in registry:
        forwards = ForwardGate(live.bundle.model.hidden)
        monkeypatch.setattr(live.bundle.model, "hidden", forwards)
        warm_ups.append(asyncio.create_task(live.warm_up()))
        await forwards.arrival(1)
        stuck.append(forwards)
    started = time.monotonic()
    registry.close()
    assert 1.4 < time.monotonic() - started < 2.6  # one after the other they would take 3
    for forwards in stuck:
        forwards.lift()
    for outcome in await asyncio.gather(*warm_ups, return_exceptions=True):
        assert isinstance(outcome, NotReady)
