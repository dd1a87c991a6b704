"""The catalogue's benchmark at toy size: what is timed is what it says, at every size, and what goes wrong is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import catalog as catalog_benchmark
from benchmarks.catalog import PARTS, Setup, measure
from benchmarks.catalog_attributes import CATEGORIES, CATEGORY, cheap, cheap_of_categories, with_attributes
from benchmarks.catalog_data import Shape, read_rows, write_rows
from benchmarks.catalog_filter import KEPT
from benchmarks.catalog_swap import Shop, is_mixed
from benchmarks.catalog_updates import ATTRIBUTES_ONLY, MIXED, draw_batches
from benchmarks.workload import TINY
from item_catalog.attribute_columns import attribute_values
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.filtering.live_sets import live_items
from recall_service.stubs.recall.v1 import recall_pb2

TOY = Shape(codebook_size=64, num_visited=16, children=8, leaves=2)
FILTER_COSTS = ("cost", "decode_cost", "selection_cost")


@pytest.fixture(scope="module")
def toy_setup(tiny_checkpoint: Path) -> Setup:
    return Setup(
        shape=TOY,
        workload=replace(TINY, codebook_size=TOY.codebook_size),
        checkpoint=tiny_checkpoint,
        width=5,
        excluded=(10, 50),
        widths=(8, 4),
        repeats=2,
        batch=20,
        swap={"num_swaps": 20, "num_items": 360, "before_seconds": 0.3},
    )


def toy_catalog(num_items: int, directory: Path) -> Catalog:
    write_rows(directory, TOY, num_items, shuffled_ids=False)
    sids, item_ids = read_rows(directory)
    return with_attributes(build_catalog(TOY.layout, sids, item_ids))


@pytest.mark.parametrize("shuffled_ids", [False, True], ids=["ascending", "shuffled"])
@pytest.mark.parametrize("num_items", [TOY.min_items, 3_000])
def test_what_is_visited_branches_alike_at_every_size(num_items: int, shuffled_ids: bool, tmp_path: Path) -> None:
    write_rows(tmp_path, TOY, num_items, shuffled_ids=shuffled_ids)
    sids, item_ids = read_rows(tmp_path)
    assert ((item_ids[1:] > item_ids[:-1]).all()) != shuffled_ids
    catalog = build_catalog(TOY.layout, sids, item_ids)
    assert catalog.num_items == num_items
    tree = catalog.trie
    assert tree.codes[0].tolist() == list(range(64))
    for code in TOY.visited_codes:
        seconds = range(tree.offsets[1][code], tree.offsets[1][code + 1])
        assert len(seconds) == 8
        assert {int(tree.offsets[2][node + 1] - tree.offsets[2][node]) for node in seconds} == {2}


def test_too_few_items_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"num_items: 9; give at least {TOY.min_items}"):
        write_rows(tmp_path, TOY, 9, shuffled_ids=False)


def test_sizes_are_built_searched_and_excluded_from_alike(toy_setup: Setup, tmp_path: Path) -> None:
    parts = ["build", "selection", "exclusions"]
    sizes = [TOY.min_items, 5_000]
    large = measure(toy_setup, sizes, parts, shuffled_ids=False, directory=tmp_path)
    (small,) = large.pop("smaller")
    assert [small["items"], large["items"]] == sizes
    assert large["selection_growth"] == pytest.approx(large["selection_seconds"] / small["selection_seconds"] - 1)
    for result in (small, large):
        assert result["build_ratio"] == result["build_seconds"] / result["sort_seconds"] > 0
        assert result["bytes_per_item"] > result["trie_bytes_per_item"] > 0
        assert min(result["open_seconds"], result["verify_seconds"], result["selection_seconds"]) > 0
        assert [found["excluded"] for found in result["exclusions"]] == [10, 50]
        assert result["exclude_1000_seconds"] == result["exclusions"][0]["seconds"]
        for found in result["exclusions"]:
            assert 0 < max(found[f"{part}_seconds"] for part in ("find", "dead_set", "without")) <= found["seconds"]
    assert not list(tmp_path.iterdir())


def test_filters_are_timed_new_and_cached(toy_setup: Setup, tmp_path: Path) -> None:
    found = measure(toy_setup, [5_000], ["filter"], shuffled_ids=False, directory=tmp_path)
    assert min(found["filter_new_seconds"], found["filter_first_seconds"], found["filter_bytes"]) > 0
    assert 0 < found["filter_kept"] < 0.1
    cells = found["filter_cached"]
    assert [(cell["width"], cell["kept"]) for cell in cells] == [(width, kept) for width in (8, 4) for kept in KEPT]
    assert found["filter_cached_chance"] == max(abs(cell["cost"]) for cell in cells if cell["kept"] == 1)
    assert found["filter_cached_cost"] == max(cell["cost"] for cell in cells if cell["kept"] < 1)
    for cell in cells:
        assert min(cell["seconds"], cell["plain_seconds"]) > 0
        assert all(cell[cost] > -1 for cost in FILTER_COSTS)


def test_updates_go_live_on_a_server(toy_setup: Setup, tmp_path: Path) -> None:
    found = measure(toy_setup, [5_000], ["updates"], shuffled_ids=True, directory=tmp_path)
    assert found["update_batch"] == 20
    assert min(found[f"update_{what}_seconds"] for what in ("10k", "first", "attributes")) > 0
    assert found["update_server_bytes"] > 1 << 20


def test_catalogues_are_swapped_under_load(toy_setup: Setup) -> None:
    found = measure(toy_setup, [5_000], ["swap"], shuffled_ids=False, directory=None)
    assert (found["swaps"], found["swap_failed"], found["swap_mixed"]) == (20, 0, 0)
    assert "build_seconds" not in found
    assert found["swap_calls"] >= found["swap_versions"] >= 2
    assert 0 < found["swap_seconds"] <= found["swap_seconds_max"]
    assert 0 < found["swap_p50_ms"] <= found["swap_p99_ms"]
    assert 0 < found["before_p50_ms"] <= found["before_p99_ms"]
    assert abs(found["swap_rss_growth"]) < 0.5


def test_filters_keep_the_share_that_they_say(tmp_path: Path) -> None:
    catalog = toy_catalog(3_000, tmp_path)
    assert live_items(catalog, cheap(0.9)).mean() == pytest.approx(0.9, abs=0.03)
    kept = np.flatnonzero(live_items(catalog, cheap_of_categories(1.0, first=49)))
    assert set(attribute_values(catalog.attributes[CATEGORY], kept)) == {CATEGORIES[49], *CATEGORIES[:2]}


def test_batches_name_no_item_twice(tmp_path: Path) -> None:
    catalog = toy_catalog(3_000, tmp_path)
    mixed, attributes_only = draw_batches(catalog, 40)
    assert (len(mixed), len(attributes_only)) == (MIXED, ATTRIBUTES_ONLY)
    named: list[str] = []
    for batch in (*mixed, *attributes_only):
        assert len(batch.request.upserts) + len(batch.request.removals) == 40
        assert batch.added + batch.changed + batch.removed == 40
        named += [*(upsert.item_id for upsert in batch.request.upserts), *batch.request.removals]
    assert len(set(named)) == len(named)
    is_new = catalog.find(named) < 0
    assert is_new.sum() == sum(batch.added for batch in mixed) == MIXED * 12
    with pytest.raises(ValueError, match="batch: 273 updates; 3,000 items are enough for batches of 272"):
        draw_batches(catalog, 273)


def answer(item_ids: list[str], **fields: Any) -> recall_pb2.RecallResponse:
    items = [recall_pb2.RecalledItem(item_id=item_id) for item_id in item_ids]
    return recall_pb2.RecallResponse(items=items, **{"catalog_version": "1", "unknown_history_items": 1, **fields})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(answer(["a", "b"]), False, id="one version's"),
        pytest.param(answer(["a", "c"]), True, id="an item of another version"),
        pytest.param(answer(["a"], catalog_version="2"), True, id="another version's name"),
        pytest.param(answer(["a"], catalog_version="3"), True, id="a version that never was"),
        pytest.param(answer(["a"], unknown_history_items=0), True, id="a history that both know"),
        pytest.param(answer([]), True, id="no items"),
    ],
)
def test_a_mixed_answer_is_told(given: recall_pb2.RecallResponse, expected: bool) -> None:
    assert is_mixed(given, {"1": frozenset("ab"), "2": frozenset("bc")}) == expected


def test_every_batch_of_a_shop_replaces_the_one_before() -> None:
    shop = Shop("a", num_items=240)
    before = shop.contents()
    first, second = shop.next_updates(), shop.next_updates()
    fresh = {upsert.item_id for upsert in second.upserts}
    assert len(fresh) == len({tuple(upsert.sid) for upsert in second.upserts}) == 120
    assert set(second.removals) == {upsert.item_id for upsert in first.upserts}
    assert shop.contents() == before | fresh
    assert max(fresh) < min(before)


def test_parts_are_named_once_and_strangers_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        catalog_benchmark.main(["--parts", "swap,swop"])
    assert f"'swop' is none of {', '.join(PARTS)}" in capsys.readouterr().err
