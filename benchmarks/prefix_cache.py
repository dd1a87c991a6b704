"""What a prefix that was run before saves: prefill of prompts that begin as an earlier one did, or as none did.

Each round runs a prompt of its own, and then one that shares its beginning and goes on differently, in the same engine
on a Qwen3-0.6B-shaped checkpoint of random weights. One round warms up; medians of the others are reported. Only whole
pages are reused, so a little less than what is shared. `ratio` is the seconds without over the seconds with a prefix.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.report import commit, hardware, print_json_line
from benchmarks.workload import QWEN3_600M, TINY, cache_directory, prepare_checkpoint
from recall_service.engine.engine import BeamEngine
from recall_service.engine.generation import Generation
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.engine.scheduler import EngineLimits

REQUIRED_RATIO = 5.0  # where 90 % of 512 tokens are shared


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every page length; the last line of stdout is the JSON."""
    given = _parser().parse_args(arguments)
    workload, name = (TINY, "tiny") if given.tiny else (QWEN3_600M, "qwen3-600m")
    checkpoint = prepare_checkpoint(workload, given.checkpoint or cache_directory() / name)
    decoder = load_decoder(checkpoint)
    results = [
        measure(decoder, given.prompt, given.shared, page_len=page_len, repeats=given.repeats)
        for page_len in given.page_lens
    ]
    print_table(results)
    print_json_line(
        {
            "benchmark": "prefix_cache",
            "results": results,
            "required_ratio": REQUIRED_RATIO,
            "settings": {"repeats": given.repeats, "dtype": str(decoder.dtype).removeprefix("torch.")},
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 0


def measure(decoder: Decoder, prompt_len: int, shared: float, *, page_len: int, repeats: int) -> dict[str, Any]:
    """Medians of prefill, in seconds, without and with a prefix of `shared` times prompt_len tokens."""
    rng, vocab_size = np.random.default_rng(0), decoder.config.vocab_size
    num_pages = 4 * -(-prompt_len // page_len)  # those of two rounds
    limits = EngineLimits(max_rows=1, max_steps=1, context_pages=num_pages, page_len=page_len)
    engine = BeamEngine(decoder, limits)
    num_shared = int(shared * prompt_len)
    cold, hit = [], []
    for _ in range(repeats + 1):
        first = rng.integers(0, vocab_size, prompt_len)
        rest = rng.integers(0, vocab_size, prompt_len - num_shared)
        cold.append(search(engine, first))
        hit.append(search(engine, np.concatenate([first[:num_shared], rest])))
    assert {result.cached_prompt_tokens for result in cold} == {0}
    cold_seconds, hit_seconds = (
        statistics.median(result.prefill_seconds for result in results[1:]) for results in (cold, hit)
    )
    return {
        "prompt": prompt_len,
        "shared_tokens": num_shared,
        "cached_tokens": hit[0].cached_prompt_tokens,
        "page_len": page_len,
        "cold_seconds": cold_seconds,
        "hit_seconds": hit_seconds,
        "ratio": cold_seconds / hit_seconds,
    }


def search(engine: BeamEngine, prompt: NDArray[np.int64]) -> BeamResult:
    """One token after the prompt, so that there is a prefill and nothing else."""
    (result,) = engine.search([BeamRequest(prompt=prompt, beam_width=1, generation=Generation(max_new_tokens=1))])
    return result


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """For people, on stdout."""
    table = Table(title="prefill without and with a prefix that was run before")
    for heading in ("prompt", "shared", "cached", "page", "cold", "hit", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            str(result["prompt"]),
            str(result["shared_tokens"]),
            str(result["cached_tokens"]),
            str(result["page_len"]),
            f"{1000 * result['cold_seconds']:.1f} ms",
            f"{1000 * result['hit_seconds']:.1f} ms",
            f"{result['ratio']:.1f}x",
        )
    Console().print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix_cache", description=__doc__)
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--shared", type=float, default=0.9, help="which part of them an earlier prompt begins with")
    parser.add_argument("--page-lens", type=_numbers, default=(EngineLimits().page_len,), help="tokens, by comma")
    parser.add_argument("--repeats", type=int, default=7, help="rounds after the one that warms up")
    parser.add_argument("--checkpoint", type=Path, help="where the checkpoint is, or is to be written")
    parser.add_argument("--tiny", action="store_true", help="a toy checkpoint, to try the benchmark out")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
