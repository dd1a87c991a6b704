"""The speed of the engine, stage by stage, beside the matrix products that nobody can avoid.

Each cell is one search of random prompt tokens on a Qwen3-0.6B-shaped checkpoint, free or over a catalogue of a million
items. Searches and their floor (see `benchmarks.floor`) run alternately after one warm-up; medians are reported, and
`floor_ratio` is floor over ours: 1 would be matrix products and nothing else. Every optimisation that the engine can be
told to leave out is measured on and off. With --short: short prompts and 10 new tokens, as queries per second.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.arguments import numbers
from benchmarks.engine_tables import print_cells, print_products, print_short, print_switches
from benchmarks.floor import Floor, FloorWeights, Product, Timed, parts_of
from benchmarks.memory import MemoryBudget, peak_bytes
from benchmarks.report import commit, hardware, print_json_line
from benchmarks.searches import CONSTRAINED, FREE, MODES, Cell, Searches, SearchTimes, timed_search
from benchmarks.switches import LOADING, Switch, engine_switches
from benchmarks.workload import (
    NEW_TOKENS,
    QWEN3_600M,
    SHORT_NEW_TOKENS,
    SHORT_PROMPTS,
    TINY,
    Workload,
    cache_directory,
    prepare_catalog,
    prepare_checkpoint,
)

PROMPTS = (256, 512, 1000)
WIDTHS = (10, 50, 100, 200, 400)


@dataclass(frozen=True, slots=True)
class Grid:
    """What to measure, and on what."""

    workload: Workload
    checkpoint: Path
    catalog: Path
    dtype: str
    prompts: tuple[int, ...]
    widths: tuple[int, ...]
    modes: tuple[str, ...]
    repeats: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the flags ask for; the last line of stdout is the JSON."""
    given = _parser().parse_args(arguments)
    grid = _grid(given)
    prepare_checkpoint(grid.workload, grid.checkpoint)
    prepare_catalog(grid.workload, grid.catalog)
    searches = Searches.load(grid.workload, grid.checkpoint, grid.catalog, dtype=grid.dtype)
    document: dict[str, Any] = {"benchmark": "engine_short"} if given.short else {"benchmark": "engine"}
    if given.short:
        document["results"] = measure_short(grid, searches)
        print_short(document["results"])
    else:
        document["results"], products = measure_grid(grid, searches)
        document["products"] = products
        document["switches"] = measure_switches(grid, searches)
        print_products(products)
        print_switches(document["switches"])
        print_cells(document["results"])
    document["settings"] = {
        "dtype": str(searches.decoder.dtype).removeprefix("torch."),
        "new_tokens": SHORT_NEW_TOKENS if given.short else NEW_TOKENS,
        "repeats": grid.repeats,
        "items": grid.workload.num_items,
        "vocab_size": searches.decoder.config.vocab_size,
        "layers": searches.decoder.config.num_layers,
        "peak_bytes": "growth of the resident set's high-water mark of a process of its own since before loading",
    }
    print_json_line(document | {"hardware": hardware(), "commit": commit()})
    return 0


def measure_grid(grid: Grid, searches: Searches) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every cell in every mode, and every product of their floors."""
    weights = FloorWeights(searches.decoder.config, searches.decoder.dtype)
    results: list[dict[str, Any]] = []
    products: dict[tuple[Product, int], dict[str, Any]] = {}
    cells = [Cell(prompt, width, NEW_TOKENS) for prompt in grid.prompts for width in grid.widths]
    for cell in cells:
        times, floors = measure_cell(searches, weights, cell, grid.modes, grid.repeats)
        for mode in grid.modes:
            peak = peak_bytes(grid.checkpoint, grid.catalog, cell, mode, grid.dtype, is_tiny=grid.workload is TINY)
            floor = floors[_median(times[mode]).decode_rows]
            results.append(cell_result(searches, cell, mode, times, floor, peak))
            say(f"prompt {cell.prompt} W {cell.width} {mode}: {results[-1]['seconds']:.3f} s")
            products |= {(entry.product, cell.prompt): product_result(entry, cell) for entry in floor}
    return results, list(products.values())


def measure_cell(
    searches: Searches, weights: FloorWeights, cell: Cell, modes: Sequence[str], repeats: int
) -> tuple[dict[str, list[SearchTimes]], dict[tuple[int, ...], list[Timed]]]:
    """The times of each mode, and the floor for each list of forwarded rows that came up; all in turns."""
    engine = searches.engine_for(cell)
    times: dict[str, list[SearchTimes]] = {mode: [] for mode in modes}
    floors: dict[tuple[int, ...], Floor] = {}
    for repeat in range(repeats + 1):  # the first is the warm-up
        for turn, mode in enumerate(modes):
            seed = repeat * len(modes) + turn  # a prompt that the other mode ran would be in the prefix cache
            search = timed_search(engine, searches.request(cell, mode, seed))
            if search.decode_rows not in floors:
                floors[search.decode_rows] = Floor(weights, cell.prompt, search.decode_rows)
                floors[search.decode_rows].run(warm_up=True)
            if repeat:
                times[mode].append(search)
        for floor in floors.values():
            floor.run()
    return times, {rows: floor.timed() for rows, floor in floors.items()}


def cell_result(
    searches: Searches,
    cell: Cell,
    mode: str,
    times: dict[str, list[SearchTimes]],
    floor: list[Timed],
    peak: int | None,
) -> dict[str, Any]:
    """One line of the results."""
    ours, parts = _median(times[mode]), parts_of(floor)
    floor_seconds = sum(parts.values())
    budget = MemoryBudget.of(searches.decoder.config, cell, searches.decoder.dtype.itemsize)
    return {
        "prompt": cell.prompt,
        "width": cell.width,
        "mode": mode,
        "seconds": ours.seconds,
        "prefill_seconds": ours.prefill_seconds,
        "decode_seconds": ours.decode_seconds,
        "selection_seconds": ours.selection_seconds,
        "decode_rows": ours.decode_rows,
        "floor_seconds": floor_seconds,
        "floor_ratio": floor_seconds / ours.seconds,
        "floor_parts": parts,
        "over_free": _over_free(times) if mode == CONSTRAINED else None,
        "peak_bytes": peak,
        "budget_bytes": budget.total,
        "excess_percent": None if peak is None else 100 * (peak / budget.total - 1),
    }


def product_result(entry: Timed, cell: Cell) -> dict[str, Any]:
    """One matrix product of a floor, and what each way to run it costs per layer."""
    per_layer = {way: seconds / entry.product.layers for way, seconds in entry.seconds_by_way.items()}
    return entry.product._asdict() | {"prompt": cell.prompt, "times": entry.times, "layer_seconds_by_way": per_layer}


def measure_switches(grid: Grid, searches: Searches) -> list[dict[str, Any]]:
    """Each switch of the engine both ways in turns, for the widest beam and the shortest prompt of the grid."""
    cell = Cell(min(grid.prompts), max(grid.widths), NEW_TOKENS)
    results = []
    for switch in engine_switches():
        ways = {switch.default: searches, not switch.default: _flip(switch, grid, searches)}
        for mode in grid.modes:
            seconds = _alternately(ways, cell, mode, grid.repeats)
            cell_fields = {"prompt": cell.prompt, "width": cell.width, "mode": mode}
            on_off = {"on_seconds": seconds[True], "off_seconds": seconds[False]}
            results.append({"switch": switch.name, "default": switch.default} | cell_fields | on_off)
            say(f"{switch.name}, {mode}: {seconds[True]:.3f} s on, {seconds[False]:.3f} s off")
    return results


def measure_short(grid: Grid, searches: Searches) -> list[dict[str, Any]]:
    """Free searches one after another; a query per second is one prompt answered in one second."""
    results = []
    for width in grid.widths:
        seconds = []
        for repeat in range(grid.repeats + 1):
            for prompt in SHORT_PROMPTS:
                cell = Cell(prompt, width, SHORT_NEW_TOKENS)
                search = timed_search(searches.engine_for(cell), searches.request(cell, FREE, seed=repeat))
                seconds += [search.seconds] if repeat else []
        results.append({"width": width, "queries": len(seconds), "queries_per_second": len(seconds) / sum(seconds)})
        say(f"W {width}: {results[-1]['queries_per_second']:.2f} queries per second")
    return results


def say(progress: str) -> None:
    """A line for whoever waits."""
    print(progress, file=sys.stderr, flush=True)


def _flip(switch: Switch, grid: Grid, searches: Searches) -> Searches:
    if switch.of != LOADING:
        settings: dict[str, Any] = {switch.of: switch.flipped}
        return replace(searches, **settings)
    return Searches.load(grid.workload, grid.checkpoint, grid.catalog, dtype=grid.dtype, **switch.flipped)


def _alternately(ways: dict[bool, Searches], cell: Cell, mode: str, repeats: int) -> dict[bool, float]:
    """Median seconds of the same cell both ways."""
    engines = {way: searches.engine_for(cell) for way, searches in ways.items()}
    seconds: dict[bool, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):
        for way, searches in ways.items():
            search = timed_search(engines[way], searches.request(cell, mode, seed=repeat))
            seconds[way] += [search.seconds] if repeat else []
    return {way: statistics.median(each) for way, each in seconds.items()}


def _median(times: Sequence[SearchTimes]) -> SearchTimes:
    """The median of each figure; rows and score are the last search's."""
    figures = ("seconds", "prefill_seconds", "decode_seconds", "selection_seconds")
    return times[-1]._replace(**{name: statistics.median(getattr(each, name) for each in times) for name in figures})


def _over_free(times: dict[str, list[SearchTimes]]) -> float | None:
    """What the constraint costs: constrained over free seconds; None unless both forwarded the same rows."""
    if FREE not in times:
        return None
    free, constrained = _median(times[FREE]), _median(times[CONSTRAINED])
    return constrained.seconds / free.seconds if constrained.decode_rows == free.decode_rows else None


def _grid(given: argparse.Namespace) -> Grid:
    workload, name = (TINY, "tiny") if given.tiny else (QWEN3_600M, "qwen3-600m")
    return Grid(
        workload=workload,
        checkpoint=given.checkpoint or cache_directory() / name,
        catalog=cache_directory() / f"catalog-{workload.num_items}x{workload.codebook_size}",
        dtype=given.dtype,
        prompts=given.prompts,
        widths=given.widths,
        modes=given.modes,
        repeats=given.repeats,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--prompts", type=numbers, default=PROMPTS, help="lengths in tokens, by comma")
    parser.add_argument("--widths", type=numbers, default=WIDTHS, help="beam widths, by comma")
    parser.add_argument("--modes", type=_modes, default=MODES, help="free, constrained, or both by comma")
    parser.add_argument("--checkpoint", type=Path, help="where the checkpoint is, or is to be written")
    parser.add_argument("--repeats", type=int, default=3, help="searches of each cell after its warm-up")
    parser.add_argument("--dtype", default="auto", help="auto, bfloat16 or float32")
    parser.add_argument("--short", action="store_true", help="16 to 64 prompt tokens, 10 new ones: queries per second")
    parser.add_argument("--tiny", action="store_true", help="a toy checkpoint and catalogue, to try the benchmark out")
    return parser


def _modes(text: str) -> tuple[str, ...]:
    modes = tuple(text.split(","))
    if unknown := set(modes) - set(MODES):
        raise argparse.ArgumentTypeError(f"{min(unknown)!r}; known are {', '.join(MODES)}")
    return modes


if __name__ == "__main__":
    sys.exit(main())
