"""The engine benchmark's figures: all there, and made of the parts they claim to be made of."""

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engine
from benchmarks.floor import FloorWeights, Product, Timed, parts_of
from benchmarks.memory import MemoryBudget
from benchmarks.searches import CONSTRAINED, FREE, Cell, Searches, SearchTimes, timed_search
from benchmarks.switches import engine_switches
from benchmarks.workload import TINY, cache_directory
from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.config import read_config
from recall_service.engine.request import BeamRequest
from recall_service.engine.scheduler import EngineLimits

FIELDS = {
    *("prompt", "width", "mode", "seconds", "prefill_seconds", "decode_seconds", "selection_seconds", "decode_rows"),
    *("floor_seconds", "floor_ratio", "floor_parts", "over_free", "peak_bytes", "budget_bytes", "excess_percent"),
}


def run(checkpoint: Path, *flags: str) -> dict[str, Any]:
    """The JSON of the last line of stdout."""
    with redirect_stdout(io.StringIO()) as stdout:
        assert engine.main(["--tiny", "--checkpoint", str(checkpoint), "--repeats", "1", *flags]) == 0
    document: dict[str, Any] = json.loads(stdout.getvalue().splitlines()[-1])
    return document


@pytest.fixture(scope="module")
def document(tiny_checkpoint: Path) -> dict[str, Any]:
    """One cell in both modes."""
    return run(tiny_checkpoint, "--prompts", "16", "--widths", "10")


def test_a_cell_is_made_of_its_parts(document: dict[str, Any]) -> None:
    free, constrained = document["results"]
    assert (free["mode"], constrained["mode"]) == (FREE, CONSTRAINED)
    for result in (free, constrained):
        assert set(result) == FIELDS
        assert result["decode_rows"] == [10, 10]
        assert result["floor_seconds"] == pytest.approx(sum(result["floor_parts"].values()))
        assert result["floor_ratio"] == pytest.approx(result["floor_seconds"] / result["seconds"])
        assert 0 < result["prefill_seconds"] + result["decode_seconds"] <= result["seconds"]
        assert 0 < result["selection_seconds"] < result["seconds"]
    assert free["over_free"] is None
    assert constrained["over_free"] == pytest.approx(constrained["seconds"] / free["seconds"])
    assert document["settings"]["items"] == 2000
    assert {"hardware", "commit"} <= document.keys()


def test_the_floor_is_the_fastest_way_of_every_product(document: dict[str, Any]) -> None:
    fastest = [
        product["times"] * product["layers"] * min(product["layer_seconds_by_way"].values())
        for product in document["products"]
    ]
    assert sum(fastest) == pytest.approx(document["results"][0]["floor_seconds"])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's high-water mark")
def test_the_peak_covers_the_budget(document: dict[str, Any]) -> None:
    for result in document["results"]:
        assert result["peak_bytes"] > result["budget_bytes"]
        assert result["excess_percent"] == pytest.approx(100 * (result["peak_bytes"] / result["budget_bytes"] - 1))


def test_every_switch_is_measured_on_and_off(document: dict[str, Any]) -> None:
    measured = [(entry["switch"], entry["mode"]) for entry in document["switches"]]
    assert measured == [(switch.name, mode) for switch in engine_switches() for mode in (FREE, CONSTRAINED)]
    for entry in document["switches"]:
        assert (entry["prompt"], entry["width"]) == (16, 10)
        assert entry["on_seconds"] > 0
        assert entry["off_seconds"] > 0


def test_no_search_of_a_cell_finds_its_prompt_in_the_prefix_cache(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[bytes] = []

    def searched(beam_engine: BeamEngine, request: BeamRequest) -> SearchTimes:
        prompts.append(request.prompt.tobytes())
        return timed_search(beam_engine, request)

    monkeypatch.setattr(engine, "timed_search", searched)
    searches = Searches.load(TINY, tiny_checkpoint, cache_directory() / "catalog-of-a-cell")
    weights = FloorWeights(searches.decoder.config, searches.decoder.dtype)
    engine.measure_cell(searches, weights, Cell(16, 4, 3), (FREE, CONSTRAINED), repeats=2)
    assert len(prompts) == 6
    assert len(set(prompts)) == 6


def test_short_prompts_as_queries_per_second(tiny_checkpoint: Path) -> None:
    document = run(tiny_checkpoint, "--short", "--widths", "2,5")
    assert [result["width"] for result in document["results"]] == [2, 5]
    assert document["settings"]["new_tokens"] == 10
    for result in document["results"]:
        assert result["queries"] == 4
        assert result["queries_per_second"] > 0


def test_switches_are_those_of_the_code() -> None:
    switches = {switch.name: switch for switch in engine_switches()}
    assert {"prefix_cache", "skip_rows"} <= switches.keys()
    flipped = EngineLimits(**switches["prefix_cache"].flipped)
    assert flipped.prefix_cache is not EngineLimits().prefix_cache


def test_parts_add_up_what_belongs_together() -> None:
    timed = [
        Timed(Product("decode", "qkv", 10, 2), 2, {"plain": 3.0, "packed": 1.0}),
        Timed(Product("decode", "down", 10, 2), 1, {"plain": 5.0}),
        Timed(Product("prefill", "head", 1, 1), 1, {"plain": 7.0}),
    ]
    assert parts_of(timed) == {"decode_linear": 7.0, "prefill_head": 7.0}


@pytest.mark.parametrize(
    ("constrained_rows", "expected"), [((4, 4), 1.5), ((4, 3), None)], ids=["equal-rows", "fewer-rows"]
)
def test_constraint_is_compared_at_equal_rows_alone(constrained_rows: tuple[int, ...], expected: float | None) -> None:
    def times(seconds: float, rows: tuple[int, ...]) -> list[SearchTimes]:
        return [SearchTimes(seconds, 0.0, 0.0, 0.0, rows, 0.0)]

    assert engine._over_free({FREE: times(2.0, (4, 4)), CONSTRAINED: times(3.0, constrained_rows)}) == expected


def test_budget_counts_what_the_checkpoint_holds(tiny_checkpoint: Path) -> None:
    config = read_config(tiny_checkpoint)
    budget = MemoryBudget.of(config, Cell(prompt=16, width=10, new_tokens=3), value_bytes=2)
    matrices = 512 * 32 + 2 * 32 * (32 + 16 + 16 + 32 + 3 * 64)  # tied head; 2 layers of q, k, v, o and the MLP
    token_bytes = 2 * 2 * 2 * 8 * 2  # keys and values, layers, KV heads, head_dim, bf16
    assert (budget.weights, budget.context, budget.slots) == (2 * matrices, 16 * token_bytes, 30 * token_bytes)
    assert budget.total == budget.weights + budget.context + budget.slots


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--widths", "100,0"), "give positive integers by comma"),
        (("--prompts", "long"), "give positive integers by comma"),
        (("--modes", "free,wild"), "'wild'; known are free, constrained"),
    ],
    ids=["zero-width", "no-number", "unknown-mode"],
)
def test_flags_that_mean_nothing_are_refused(
    flags: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        engine.main(list(flags))
    assert message in capsys.readouterr().err
