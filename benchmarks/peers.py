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

from rich.console import Console
from rich.table import Table

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
