"""A catalogue of any size: built, opened, searched, filtered, changed while it is served, and swapped for another.

    build       from arrays, in a process of its own, beside numpy.sort of the same packed keys; written, opened,
                verified; every other part but swap needs it
    selection   what of a search depends on the catalogue, on nodes of equal branching
    exclusions  1,000 and 10,000 items left out of one search
    filter      one that is new, and what a cached one adds to a search with a model shaped like Qwen3-0.6B
    updates     10,000 at a time, live on a real server
    swap        200 times under load, on a real server, of two catalogues of 100,000 items each

The first three are measured at 1 and 10 million items too, unless fewer are asked for. Rows and catalogues are written
to a temporary directory: 10 GB for 100 million items. A table for people, and as the last line one JSON document.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.catalog_attributes import with_attributes
from benchmarks.catalog_build import measure_storage
from benchmarks.catalog_data import LARGE, Shape
from benchmarks.catalog_exclusions import COUNTS, measure_exclusions
from benchmarks.catalog_filter import measure_cached_filters, measure_new_filters
from benchmarks.catalog_selection import WIDTH, measure_selection
from benchmarks.catalog_swap import measure_swaps
from benchmarks.catalog_tables import print_cached_filters, print_exclusions, print_figures, print_sizes
from benchmarks.catalog_updates import BATCH, measure_updates, write_bundle
from benchmarks.report import commit, hardware, print_json_line
from benchmarks.workload import QWEN3_600M, Workload, cache_directory, prepare_checkpoint
from item_catalog.storage.directory import open_catalog
from item_catalog.updating.store import CatalogStore

PARTS = ("build", "selection", "exclusions", "filter", "updates", "swap")
_, SELECTION, EXCLUSIONS, FILTER, UPDATES, SWAP = PARTS  # what needs a catalogue has one built, asked for or not
SMALLER_ITEMS = (1_000_000, 10_000_000)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured, but for how many items.

    workload: the model that filters are measured with, of the shape's codebooks. width: of the beams whose selection is
    timed. widths, repeats: of the searches with cached filters. batch: updates at a time. swap: for measure_swaps.
    """

    shape: Shape
    workload: Workload
    checkpoint: Path
    width: int
    excluded: tuple[int, ...]
    widths: tuple[int, ...]
    repeats: int
    batch: int
    swap: dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts asked for, up to --items; the last line of stdout is the JSON."""
    given = _parser().parse_args(arguments)
    setup = Setup(
        shape=LARGE,
        workload=QWEN3_600M,
        checkpoint=cache_directory() / "qwen3-600m",
        width=WIDTH,
        excluded=COUNTS,
        widths=(400, 100),
        repeats=given.repeats,
        batch=BATCH,
        swap={},
    )
    sizes = [*(size for size in SMALLER_ITEMS if size < given.items), given.items]
    document = measure(setup, sizes, given.parts, shuffled_ids=given.shuffled_ids, directory=given.directory)
    settings = {
        "parts": given.parts,
        "item_ids": "shuffled" if given.shuffled_ids else "ascending",
        "shape": LARGE._asdict(),
        "repeats": given.repeats,
    }
    print_json_line(
        {"benchmark": "catalog", **document, "settings": settings, "hardware": hardware(), "commit": commit()}
    )
    return 0


def measure(
    setup: Setup, sizes: Sequence[int], parts: Sequence[str], *, shuffled_ids: bool, directory: Path | None
) -> dict[str, Any]:
    """The figures of the largest size, and under `smaller` those of the others; a table of each part on the way.

    directory: where temporary files may lie; None: where the system has them.
    """
    document: dict[str, Any] = {}
    if set(parts) != {SWAP}:
        with tempfile.TemporaryDirectory(dir=directory) as temporary:
            document |= _measure_sizes(setup, sizes, parts, shuffled_ids, Path(temporary))
    if SWAP in parts:
        figures = measure_swaps(**setup.swap, tell=_say)
        print_figures("catalogues swapped under load", figures)
        document |= figures
    return document


def _measure_sizes(
    setup: Setup, sizes: Sequence[int], parts: Sequence[str], shuffled_ids: bool, directory: Path
) -> dict[str, Any]:
    results, places = [], []
    for num_items in sizes:
        _say(f"build: {num_items:,} items")
        places.append(directory / str(num_items))
        results.append(measure_storage(setup.shape, num_items, places[-1], shuffled_ids=shuffled_ids))
    if SELECTION in parts:
        _add_selection(setup, results, places)
    print_sizes(results)
    if EXCLUSIONS in parts:
        _add_exclusions(setup, results, places)
        print_exclusions(results)
    *smaller, largest = results
    if FILTER in parts or UPDATES in parts:
        largest |= _measure_attributes(setup, parts, places[-1])
    if SELECTION in parts:
        largest["selection_growth"] = largest["selection_seconds"] / results[0]["selection_seconds"] - 1
    return largest | {"smaller": smaller}


def _add_selection(setup: Setup, results: Sequence[dict[str, Any]], places: Sequence[Path]) -> None:
    _say("selection")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    catalogs = [open_catalog(place, verify=False) for place in places]
    for result, seconds in zip(results, measure_selection(catalogs, setup.shape, setup.width), strict=True):
        result["selection_seconds"] = seconds
    torch.set_num_threads(threads)


def _add_exclusions(setup: Setup, results: Sequence[dict[str, Any]], places: Sequence[Path]) -> None:
    _say("exclusions")
    for result, place in zip(results, places, strict=True):
        catalog = open_catalog(place, verify=False)
        result["exclusions"] = measure_exclusions(catalog, setup.workload.level_tokens, setup.excluded)
        result["exclude_1000_seconds"] = result["exclusions"][0]["seconds"]


def _measure_attributes(setup: Setup, parts: Sequence[str], place: Path) -> dict[str, Any]:
    """Filters and updates, of one catalogue with attributes, in a store beside the one without."""
    _say("a store of items with attributes")
    bundle = place.with_name("bundle")
    store = CatalogStore.create(bundle / "catalog", with_attributes(open_catalog(place, verify=False)))
    figures: dict[str, Any] = {}
    if FILTER in parts:
        _say("filter: new ones")
        catalog = store.load(verify=False).catalog
        figures |= measure_new_filters(catalog)
        prepare_checkpoint(setup.workload, setup.checkpoint)
        figures |= measure_cached_filters(
            catalog, setup.workload, setup.checkpoint, widths=setup.widths, repeats=setup.repeats, tell=_say
        )
        print_cached_filters(figures["filter_cached"])
    if UPDATES in parts:
        _say(f"updates: {setup.batch:,} at a time")
        write_bundle(bundle)
        figures |= measure_updates(bundle, setup.batch)
    print_figures("filters and updates", figures)
    return figures


def _say(progress: str) -> None:
    """A line for whoever waits."""
    print(progress, file=sys.stderr, flush=True)


def _parts(text: str) -> list[str]:
    """Names of PARTS by comma, for argparse, in the order of PARTS."""
    given = text.split(",")
    if strangers := sorted(set(given) - set(PARTS)):
        raise argparse.ArgumentTypeError(f"{strangers[0]!r} is none of {', '.join(PARTS)}")
    return [name for name in PARTS if name in given]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.catalog", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000_000, help=f"how many, {LARGE.min_items:,} or more")
    parser.add_argument("--parts", type=_parts, default=list(PARTS), metavar="PART,PART", help="all by default")
    parser.add_argument("--repeats", type=int, default=11, help="of every search with a cached filter")
    parser.add_argument("--shuffled-ids", action="store_true", help="ids in no order; else they ascend with the rows")
    parser.add_argument("--directory", type=Path, help="where temporary files may lie")
    return parser


if __name__ == "__main__":
    sys.exit(main())
