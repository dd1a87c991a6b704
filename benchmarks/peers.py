"""Other engines and ours on the same checkpoint and the same prompts, in turns.

Each peer runs in an environment of its own below the work directory (see `benchmarks.peer_recipes`); one that cannot be
installed or run here is skipped with the reason. Every search is free, of exactly 3 new tokens, and its best score must
be ours up to bf16 rounding; otherwise this exits with 1. ratio is their time over ours. With --short: short prompts and
10 new tokens, as queries per second.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.arguments import numbers
from benchmarks.engine_tables import wide_console
from benchmarks.peer_process import PeerAnswer, PeerProcess
from benchmarks.peer_recipes import PEERS, Peer, PeerUnavailable, install
from benchmarks.report import commit, hardware, print_json_line
from benchmarks.searches import FREE, Cell, Searches, SearchTimes, timed_search
from benchmarks.workload import (
    NEW_TOKENS,
    QWEN3_600M,
    SHORT_NEW_TOKENS,
    SHORT_PROMPTS,
    TINY,
    cache_directory,
    prepare_checkpoint,
)

WIDTHS = (100, 400)
REPEATS = 3
SCORE_TOLERANCE = 0.02  # per token: bf16 keeps 8 bits, and logits of this checkpoint reach about 3


@dataclass(frozen=True, slots=True)
class Round:
    """Prompts of one width, one after another. repeats: how often all of them are asked after a warm-up."""

    prompts: tuple[int, ...]
    width: int
    new_tokens: int
    repeats: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every peer that can be had; 1 when a score is not ours."""
    given = _parser().parse_args(arguments)
    work = given.work or cache_directory() / "peers"
    workload, name = (TINY, "tiny") if given.tiny else (QWEN3_600M, "qwen3-600m")
    checkpoint = prepare_checkpoint(workload, given.checkpoint or cache_directory() / name)
    searches = Searches.load(workload, checkpoint, None)
    rounds = [
        Round(SHORT_PROMPTS if given.short else (given.prompt,), width, _new_tokens(given), REPEATS)
        for width in given.widths
    ]
    results, skipped = [], []
    for peer in (PEERS[name] for name in given.peers):
        try:
            results += run_peer(peer, searches, checkpoint, work, rounds)
        except PeerUnavailable as reason:
            print(f"{peer.name}: skipped, {reason}", file=sys.stderr)
            skipped.append({"peer": peer.name, "reason": str(reason)})
    print_table(results)
    print_json_line(
        {
            "benchmark": "peers_short" if given.short else "peers",
            "peers": results,
            "skipped": skipped,
            "settings": {"new_tokens": _new_tokens(given), "score_tolerance_per_token": SCORE_TOLERANCE},
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 1 if any(not result["scores_agree"] for result in results) else 0


def run_peer(
    peer: Peer, searches: Searches, checkpoint: Path, work: Path, rounds: Sequence[Round]
) -> list[dict[str, Any]]:
    """Every round this peer can be waited for. Raises PeerUnavailable when it cannot be had or will not answer."""
    print(f"{peer.name}: installing, unless it is there", file=sys.stderr)
    python = install(peer, work)
    results = []
    with PeerProcess(peer, python, checkpoint, work) as process:
        for each in rounds:
            if each.width > peer.max_width:
                print(f"{peer.name}: W = {each.width} left out, it would take too long", file=sys.stderr)
                continue
            results.append({"peer": peer.name} | run_round(process, searches, each, peer.max_repeats))
            print(f"{peer.name}: W = {each.width}, ratio {results[-1]['ratio']:.2f}", file=sys.stderr)
    return results


def run_round(process: PeerProcess, searches: Searches, asked: Round, max_repeats: int | None) -> dict[str, Any]:
    """Peer and ours in turns on the same prompts, after a warm-up of each."""
    repeats = min(asked.repeats, max_repeats or asked.repeats)
    theirs: list[PeerAnswer] = []
    ours: list[SearchTimes] = []
    for repeat in range(repeats + 1):  # the first is the warm-up
        for prompt_len in asked.prompts:
            cell = Cell(prompt_len, asked.width, asked.new_tokens)
            request = searches.request(cell, FREE, seed=repeat)
            answer = process.ask(request.prompt.tolist(), asked.width, asked.new_tokens)
            search = timed_search(searches.engine_for(cell), request)
            if repeat:
                theirs.append(answer)
                ours.append(search)
    seconds, ours_seconds = (statistics.median(each.seconds for each in side) for side in (theirs, ours))
    difference = max(abs(their.top_score - our.top_score) for their, our in zip(theirs, ours, strict=True))
    return {
        "width": asked.width,
        "prompt": asked.prompts[0] if len(asked.prompts) == 1 else list(asked.prompts),
        "seconds": seconds,
        "ours_seconds": ours_seconds,
        "ratio": seconds / ours_seconds,
        "queries_per_second": len(theirs) / sum(each.seconds for each in theirs),
        "ours_queries_per_second": len(ours) / sum(each.seconds for each in ours),
        "score_difference": difference,
        "scores_agree": difference <= SCORE_TOLERANCE * asked.new_tokens,
    }


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """For people, on stdout."""
    table = Table(title="peers and ours: seconds of a search, and theirs over ours")
    for heading in ("peer", "W", "prompt", "theirs", "ours", "ratio", "their QPS", "our QPS", "score difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            *(str(result[name]) for name in ("peer", "width", "prompt")),
            *(f"{result[name]:.3f}" for name in ("seconds", "ours_seconds")),
            *(f"{result[name]:.2f}" for name in ("ratio", "queries_per_second", "ours_queries_per_second")),
            f"{result['score_difference']:.4f}",
        )
    wide_console().print(table)


def _new_tokens(given: argparse.Namespace) -> int:
    return SHORT_NEW_TOKENS if given.short else NEW_TOKENS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--peers", type=_names, default=tuple(PEERS), help="by comma: " + ", ".join(PEERS))
    parser.add_argument("--widths", type=numbers, default=WIDTHS, help="beam widths, by comma")
    parser.add_argument("--prompt", type=int, default=256, help="its length in tokens")
    parser.add_argument("--work", type=Path, help="where environments and converted models are kept")
    parser.add_argument("--checkpoint", type=Path, help="where the checkpoint is, or is to be written")
    parser.add_argument("--short", action="store_true", help="16 to 64 prompt tokens, 10 new ones: queries per second")
    parser.add_argument("--tiny", action="store_true", help="a toy checkpoint, to try the benchmark out")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(PEERS):
        raise argparse.ArgumentTypeError(f"{min(unknown)!r}; known are {', '.join(PEERS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
