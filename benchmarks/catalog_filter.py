"""What a filter costs: once, when it is new, and in every search that uses it afterwards.

A new filter is three categories of fifty and a price; each is another one. A cached one keeps 90 or 10 % of all items,
anywhere in the catalogue. Searches without and with it take turns, after the same prompt each time, on a model that is
shaped like Qwen3-0.6B; no prompt is remembered. What is reported is the median of what the pairs say. A second search
without any filter takes turns too: what it seems to cost is chance, and how far to trust the others.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.catalog_attributes import cheap, cheap_of_categories
from benchmarks.searches import Cell, Searches, SearchTimes, timed_search
from benchmarks.workload import NEW_TOKENS, Workload
from item_catalog.catalog import Catalog
from item_catalog.filtering.live_sets import live_set
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.request import BeamRequest

NEW_FILTERS = 9
SHARE_OF_CATEGORIES = 0.5
KEPT = (1.0, 0.9, 0.1)  # shares of the items; all of them: no filter, beside no filter
PROMPT = 256


def measure_new_filters(catalog: Catalog) -> dict[str, Any]:
    """The first one apart: it is also the first to look at the columns of a catalogue that was just opened."""
    seconds = []
    for number in range(NEW_FILTERS):
        wanted = cheap_of_categories(SHARE_OF_CATEGORIES, first=number)
        start = time.perf_counter()
        live = live_set(catalog, wanted)
        seconds.append(time.perf_counter() - start)
    first, *others = seconds
    return {
        "filter_new_seconds": statistics.median(others),
        "filter_first_seconds": first,
        "filter_bytes": live.nbytes,
        "filter_kept": live.num_items / catalog.num_items,
    }


def measure_cached_filters(
    catalog: Catalog,
    workload: Workload,
    checkpoint: Path,
    *,
    widths: Sequence[int],
    repeats: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Every width with every filter. `filter_cached_cost` is the greatest of theirs; `_chance`, of those without.

    workload: of the catalogue's codebooks. Raises RuntimeError when a filter changes how many beams a step forwards:
    the searches could not be compared.
    """
    searches = replace(Searches.load(workload, checkpoint, None), limits={"prefix_cache": False})
    plain = TrieConstraint(catalog.trie, workload.level_tokens, searches.decoder.device)
    filtered = [plain if kept == 1 else plain.keeping(live_set(catalog, cheap(kept)).nodes) for kept in KEPT]
    cells: list[dict[str, Any]] = []
    for width in widths:
        tell(f"filter: searches of width {width}")
        without, *with_each = _take_turns(searches, Cell(PROMPT, width, NEW_TOKENS), [plain, *filtered], repeats)
        cells += [_cell(width, kept, without, times) for kept, times in zip(KEPT, with_each, strict=True)]
    return {
        "filter_cached_cost": max(cell["cost"] for cell in cells if cell["kept"] < 1),
        "filter_cached_chance": max(abs(cell["cost"]) for cell in cells if cell["kept"] == 1),
        "filter_cached": cells,
    }


def _take_turns(
    searches: Searches, cell: Cell, constraints: Sequence[TrieConstraint], repeats: int
) -> list[list[SearchTimes]]:
    """For each constraint its searches. Whoever goes first in one round goes last in the next. The first warms up."""
    engine = searches.engine_for(cell)
    times: list[list[SearchTimes]] = [[] for _ in constraints]
    order = list(zip(constraints, times, strict=True))
    for repeat in range(repeats + 1):
        prompt = searches.workload.prompt(cell.prompt, seed=repeat)
        for constraint, found in order:
            search = timed_search(engine, BeamRequest(prompt=prompt, beam_width=cell.width, constraint=constraint))
            found += [search] if repeat else []
        order = [*order[1:], order[0]]
    return times


def _cell(width: int, kept: float, plain: Sequence[SearchTimes], filtered: Sequence[SearchTimes]) -> dict[str, Any]:
    """Costs as shares: cost of the whole search, decode_cost of its steps after the prompt's.

    selection_cost: what finding and keeping the best children takes longer, as a share of the steps: of all figures the
    one that what else the machine does disturbs least.
    """
    pairs = list(zip(plain, filtered, strict=True))
    if any(without.decode_rows != with_it.decode_rows for without, with_it in pairs):
        raise RuntimeError(f"filter: one that keeps {kept:.0%} leaves fewer beams than {width}; give more items")
    return {
        "width": width,
        "kept": kept,
        "plain_seconds": statistics.median(search.seconds for search in plain),
        "seconds": statistics.median(search.seconds for search in filtered),
        "cost": statistics.median(with_it.seconds / without.seconds - 1 for without, with_it in pairs),
        "decode_cost": statistics.median(
            with_it.decode_seconds / without.decode_seconds - 1 for without, with_it in pairs
        ),
        "selection_cost": statistics.median(
            (with_it.selection_seconds - without.selection_seconds) / without.decode_seconds
            for without, with_it in pairs
        ),
    }
