"""A search on a GPU, stage by stage, beside what the GPU can do at all.

A decoder of random weights in the shape of Qwen3-1.7B, made on the device; contexts of random tokens; 3 new tokens,
free or constrained by a catalogue of a million items with vocabulary scores. Medians, in milliseconds:

- whole: `engine.search` from requests to results, by the host's clock;
- each step: by the host's clock from its call until the device is done, and by the device's own with the host far
  ahead; what the device did not need of the first is the host gap;
- selection: each level's selection alone, on logits of the same shape.

Operations and bytes of a step (see `benchmarks.arithmetic`) over its device time are held against a large matrix
product and a copy in the same run. The most important cells come first; what the time does not suffice for is named.
"""

import argparse
import contextlib
import gc
import itertools
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.device_clock import DeviceClock
from benchmarks.gpu_machine import gpu_hardware, why_unfit
from benchmarks.gpu_peer import measure_peer
from benchmarks.gpu_stages import measure_ceilings, measure_cell
from benchmarks.gpu_tables import print_cells, print_peers
from benchmarks.gpu_workload import NEW_TOKENS, QWEN3_1700M, Cell, GpuWorkload
from benchmarks.report import commit, print_json_line

NUM_ITEMS, CODEBOOK_SIZE = 1_000_000, 8192
CONTEXTS, WIDTHS, BATCHES = (1000, 5000), (128, 256, 400), (1, 4, 8)
SECONDS, REPEATS, PEER_REPEATS = 330.0, 7, 3  # with the last job, under seven minutes
SEARCH, PEER = "search", "transformers"


class Job(NamedTuple):
    """What to measure: searches of ours in both modes, or those of the peer."""

    what: str
    cell: Cell


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the time suffices for; the last line of stdout is the JSON."""
    given = parser("python -m benchmarks.gpu", __doc__).parse_args(arguments)
    if (reason := why_unfit()) is not None:
        print(f"Nothing was measured: {reason}.")
        print_json_line({"benchmark": "gpu", "skipped": reason, "commit": commit()})
        return 0
    document = measure_gpu(time.monotonic() + given.seconds, quick=given.quick)
    print_json_line({"benchmark": "gpu"} | document | {"hardware": gpu_hardware(), "commit": commit()})
    return 1 if document["failed"] else 0


def parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """The flags of everything that measures on a GPU."""
    flags = argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--seconds", type=float, default=SECONDS, help="nothing is begun after so long")
    flags.add_argument("--quick", action="store_true", help="a single cell of the benchmark")
    return flags


def jobs(*, quick: bool) -> list[Job]:
    """The most important first. quick: the very first alone."""
    first = [Job(SEARCH, Cell(1000, 256, 1)), Job(SEARCH, Cell(1000, 256, 8)), Job(SEARCH, Cell(5000, 256, 1))]
    peers = [Job(PEER, Cell(1000, width, 1)) for width in (128, 256)]
    grid = [Job(SEARCH, Cell(*sizes)) for sizes in itertools.product(CONTEXTS, WIDTHS, BATCHES)]
    return first[:1] if quick else [*first, *peers, *(job for job in grid if job not in first)]


def measure_gpu(deadline: float, *, quick: bool) -> dict[str, Any]:
    """Everything there is time for, on the GPU; prints the tables. deadline: see `measure`."""
    work = GpuWorkload.random(QWEN3_1700M, CODEBOOK_SIZE, NUM_ITEMS, torch.bfloat16, torch.device("cuda"))
    document = measure(work, jobs(quick=quick), REPEATS, deadline)
    print_cells(document["results"])
    print_peers(document["peers"])
    return document


def measure(work: GpuWorkload, jobs: Sequence[Job], repeats: int, deadline: float) -> dict[str, Any]:
    """Results, peers, what failed, and what was not run, job after job. An error ends its own job alone.

    A peer that takes more memory than there is has not failed: it is skipped, with its error.

    deadline: in seconds of time.monotonic(); nothing is begun after it.
    """
    ceilings = measure_ceilings(DeviceClock(work.decoder.device), work.decoder.dtype)
    document: dict[str, Any] = {"results": [], "peers": [], "peers_skipped": [], "failed": [], "not_run": []}
    for job in jobs:
        named = {"what": job.what} | job.cell._asdict()
        if time.monotonic() > deadline:
            document["not_run"].append(named)
            continue
        try:
            clock = DeviceClock(work.decoder.device)  # a new one: an error leaves marks behind
            if job.what == PEER:
                document["peers"].append(measure_peer(work, job.cell, clock, PEER_REPEATS))
                say(document["peers"][-1])
            else:
                document["results"] += measure_cell(work, job.cell, clock, ceilings, repeats)
                say(document["results"][-2:])
        except Exception as error:  # noqa: BLE001  whatever it is, the other jobs are still of interest
            too_large = job.what == PEER and isinstance(error, torch.OutOfMemoryError)
            ended = named | {"error": f"{type(error).__name__}: {error}"}
            document["peers_skipped" if too_large else "failed"].append(ended)
            say(ended)
        gc.collect()  # an engine and its pools hang together in circles
        with contextlib.suppress(RuntimeError):  # of a device that is lost: what was measured is reported all the same
            torch.cuda.empty_cache()
    config = work.decoder.config
    document["ceilings"] = ceilings._asdict()
    document["settings"] = {
        "dtype": str(work.decoder.dtype).removeprefix("torch."),
        "new_tokens": NEW_TOKENS,
        "repeats": repeats,
        "items": work.trie.num_leaves,
        "vocab_size": config.vocab_size,
        "layers": config.num_layers,
    }
    return document


def say(progress: object) -> None:
    """A line for whoever waits, and for whoever stops waiting: what was measured is not lost."""
    print(progress, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
