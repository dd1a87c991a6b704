"""A catalogue of any size: built from arrays, opened, verified, and searched by 400 beams.

Each build runs in a process of its own. `build_ratio` is its time over that of numpy.sort on the same packed keys.
Selection is timed at 1 and 10 million items too, unless fewer are asked for, on nodes of equal branching. Rows and
catalogues are written to a temporary directory: 4 GB for 100 million items.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.catalog_build import measure_build
from benchmarks.catalog_data import LARGE, Shape, write_rows
from benchmarks.catalog_selection import WIDTH, measure_selection
from benchmarks.report import commit, hardware, print_json_line
from item_catalog.storage import open_catalog

SMALLER_ITEMS = (1_000_000, 10_000_000)
CATALOG = "catalog"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size up to --items; the last line of stdout is the JSON."""
    given = _parser().parse_args(arguments)
    sizes = [*(size for size in SMALLER_ITEMS if size < given.items), given.items]
    results = measure(LARGE, sizes, width=WIDTH, shuffled_ids=given.shuffled_ids, directory=given.directory)
    print_table(results)
    print_json_line(
        {
            "benchmark": "catalog",
            **results[-1],
            "smaller": results[:-1],
            "selection_growth": results[-1]["selection_seconds"] / results[0]["selection_seconds"] - 1,
            "settings": {"item_ids": "shuffled" if given.shuffled_ids else "ascending", "shape": LARGE._asdict()},
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 0


def measure(
    shape: Shape, sizes: Sequence[int], *, width: int, shuffled_ids: bool, directory: Path | None
) -> list[dict[str, Any]]:
    """A result for each number of items. directory: where temporary files may lie; None: where the system has them."""
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        directories = [Path(temporary) / str(num_items) for num_items in sizes]
        results = [
            _measure_storage(shape, num_items, shuffled_ids, place)
            for num_items, place in zip(sizes, directories, strict=True)
        ]
        catalogs = [open_catalog(place / CATALOG, verify=False) for place in directories]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        seconds = measure_selection(catalogs, shape, width)
        torch.set_num_threads(threads)
    return [result | {"selection_seconds": one} for result, one in zip(results, seconds, strict=True)]


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """For people, on stdout."""
    table = Table(title=f"a catalogue built, opened and searched by {WIDTH} beams")
    for heading in ("items", "sort", "build", "ratio", "peak", "trie", "open", "verify", "select"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            f"{result['items'] / 1e6:g}M",
            f"{result['sort_seconds']:.2f} s",
            f"{result['build_seconds']:.2f} s",
            f"{result['build_ratio']:.1f}x",
            f"{result['peak_bytes'] / 1e9:.1f} GB",
            f"{result['trie_bytes_per_item']:.1f} B",
            f"{1000 * result['open_seconds']:.1f} ms",
            f"{result['verify_seconds']:.1f} s",
            f"{1000 * result['selection_seconds']:.1f} ms",
        )
    Console().print(table)


def _measure_storage(shape: Shape, num_items: int, shuffled_ids: bool, directory: Path) -> dict[str, Any]:
    """Leaves the catalogue in `directory`, and not the rows."""
    rows, built = directory / "rows", directory / CATALOG
    rows.mkdir(parents=True)
    write_rows(rows, shape, num_items, shuffled_ids=shuffled_ids)
    figures = measure_build(rows, built, shape)
    shutil.rmtree(rows)
    start = time.perf_counter()
    open_catalog(built, verify=False)
    open_seconds = time.perf_counter() - start
    start = time.perf_counter()
    open_catalog(built)
    verify_seconds = time.perf_counter() - start
    return {
        "items": num_items,
        "build_seconds": figures.build_seconds,
        "build_cpu_seconds": figures.cpu_seconds,
        "sort_seconds": figures.sort_seconds,
        "build_ratio": figures.build_seconds / figures.sort_seconds,
        "peak_bytes": figures.peak_bytes,
        "trie_bytes_per_item": figures.trie_bytes / num_items,
        "bytes_per_item": figures.total_bytes / num_items,
        "write_seconds": figures.write_seconds,
        "open_seconds": open_seconds,
        "verify_seconds": verify_seconds,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalog", description=__doc__)
    parser.add_argument("--items", type=int, default=100_000_000, help=f"how many, {LARGE.min_items:,} or more")
    parser.add_argument("--shuffled-ids", action="store_true", help="ids in no order; else they ascend with the rows")
    parser.add_argument("--directory", type=Path, help="where temporary files may lie")
    return parser


if __name__ == "__main__":
    sys.exit(main())
