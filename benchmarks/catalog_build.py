"""One build of a catalogue in a process of its own, beside numpy.sort of the same packed keys.

The peak is the high-water mark of the process while it builds, what it was given included; Linux alone tells it. Before
a clock starts, as much memory as follows is touched and given back: a virtual machine may have to ask its host for
every page, which on some takes longer than sorting what is then on it.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.catalog_data import Shape, read_rows, write_rows
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.statistics import catalog_statistics
from item_catalog.storage.directory import open_catalog, save_catalog

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_HIGH_WATER = "5"
SORTS = 3
_TOUCHED_BYTES_PER_ITEM = 40  # what a build allocates beside its input


class BuildFigures(NamedTuple):
    """What one build took. cpu_seconds: of all cores together. trie_bytes: what prefixes need, without any item."""

    sort_seconds: float
    build_seconds: float
    cpu_seconds: float
    write_seconds: float
    peak_bytes: int
    trie_bytes: int
    total_bytes: int
    num_sids: int


def measure_storage(shape: Shape, num_items: int, place: Path, *, shuffled_ids: bool) -> dict[str, Any]:
    """Build, write, open and verify a catalogue; leaves it at `place`, which is made, and not the rows."""
    rows = place.with_name(f"{place.name}.rows")
    rows.mkdir()
    write_rows(rows, shape, num_items, shuffled_ids=shuffled_ids)
    figures = measure_build(rows, place, shape)
    shutil.rmtree(rows)
    start = time.perf_counter()
    open_catalog(place, verify=False)
    open_seconds = time.perf_counter() - start
    start = time.perf_counter()
    open_catalog(place)
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


def measure_build(rows: Path, out: Path, shape: Shape) -> BuildFigures:
    """Build the rows in directory `rows` in a new process, which publishes the catalogue as `out`."""
    process = subprocess.run(  # noqa: S603  our own module, no shell
        [sys.executable, "-m", "benchmarks.catalog_build", str(rows), str(out), *map(str, shape)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"benchmarks.catalog_build {rows}: {process.stderr.strip().splitlines()[-1]}")
    return BuildFigures(**json.loads(process.stdout))


def main() -> None:
    """The measured process: prints BuildFigures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catalog_build", description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("shape", type=int, nargs=len(Shape._fields))
    given = parser.parse_args()
    layout = Shape(*given.shape).layout
    sids, item_ids = read_rows(given.rows)

    sort_seconds = _time_sort(layout.pack(sids)[:, 0])
    _touch_memory(len(sids) * _TOUCHED_BYTES_PER_ITEM)
    CLEAR_REFS.write_text(RESET_HIGH_WATER, encoding="ascii")
    start, cpu_start = time.perf_counter(), time.process_time()
    catalog = build_catalog(layout, sids, item_ids)
    build_seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak_bytes = _high_water_bytes()

    start = time.perf_counter()
    save_catalog(catalog, given.out)
    write_seconds = time.perf_counter() - start
    figures = BuildFigures(sort_seconds, build_seconds, cpu_seconds, write_seconds, peak_bytes, **_sizes(catalog))
    print(json.dumps(figures._asdict()))


def _sizes(catalog: Catalog) -> dict[str, Any]:
    found = catalog_statistics(catalog)
    return {"trie_bytes": found.trie_bytes, "total_bytes": found.total_bytes, "num_sids": found.num_sids}


def _time_sort(keys: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    seconds = []
    for _ in range(SORTS):
        _touch_memory(keys.nbytes)
        start = time.perf_counter()
        np.sort(keys)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _touch_memory(num_bytes: int) -> None:
    np.ones(num_bytes, np.uint8)


def _high_water_bytes() -> int:
    (line,) = (line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
