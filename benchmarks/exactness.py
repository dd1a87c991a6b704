"""Is the engine's answer the exact one? Random searches against two slow oracles, on tiny random checkpoints.

Every case is a random catalogue, beam width, prompt and score space; cases run through the engine in batches of random
size. O2 (tests.oracles.recompute_beam) recomputes every prefix through transformers and must agree on items, order,
scores and bound. O1 (tests.oracles.exhaustive) scores every item of the catalogue and must agree with the certificate,
and with the whole answer of a beam that never pruned. Exits with 1 on a mismatch.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import PreTrainedModel

from benchmarks.report import commit, hardware, print_json_line
from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace
from recall_service.engine.scheduler import EngineLimits
from tests.make_checkpoint import make_model, write_checkpoint
from tests.oracles.compare import PER_TOKEN, certificate_faults, compare
from tests.oracles.exhaustive import score_every_item
from tests.oracles.recompute_beam import Search, recompute_beam
from tests.oracles.teacher_forcing import next_token_logits
from tests.oracles.tries import Catalogue

VOCAB_SIZE = 64
FAMILIES = ("qwen3", "qwen2", "llama")
WIDTHS = (1, 2, 3, 5, 8, 9, 16, 31, 32, 33, 64, 100, 127, 128, 129, 200, 255, 256, 257, 399, 400)
PROMPT_LENS = (1, 2, 7, 8, 9, 16, 17, 31)
BATCH_SIZES = (1, 2, 3, 4, 8)
MAX_ITEMS = 2000
LIMITS = EngineLimits(max_rows=max(BATCH_SIZES) * max(WIDTHS), max_steps=5, context_pages=64, page_len=8)


@dataclass(frozen=True, slots=True)
class Case:
    """One random search, as the engine and as the oracles need it."""

    catalogue: Catalogue
    request: BeamRequest


@dataclass(slots=True)
class Tally:
    """What came of the cases of one score space."""

    cases: int = 0
    mismatches: int = 0
    near_calls: int = 0
    unpruned: int = 0
    proven: int = 0
    answers: int = 0
    max_score_difference: float = 0.0


def main() -> int:
    """Run the cases; 0 when every one is exact, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.add_argument("--cases", type=int, default=600, help="how many random searches")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    arguments = parser.parse_args()

    started = time.monotonic()
    tallies = {space: Tally() for space in ScoreSpace}
    for case, result, model in track(
        run_cases(arguments.cases, np.random.default_rng(arguments.seed)),
        total=arguments.cases,
        description="searching",
        console=Console(stderr=True),
    ):
        judge(case, result, model, tallies[case.request.score_space])
    seconds = time.monotonic() - started

    print_table(tallies)
    mismatches = sum(tally.mismatches for tally in tallies.values())
    print_json_line(
        {
            "benchmark": "exactness",
            "cases": sum(tally.cases for tally in tallies.values()),
            "mismatches": mismatches,
            "near_calls": sum(tally.near_calls for tally in tallies.values()),
            "max_score_difference": max(tally.max_score_difference for tally in tallies.values()),
            "seconds": round(seconds, 2),
            "settings": {
                "seed": arguments.seed,
                "tolerance_per_token": PER_TOKEN,
                "families": FAMILIES,
                "beam_widths": [min(WIDTHS), max(WIDTHS)],
                "prompt_tokens": [min(PROMPT_LENS), max(PROMPT_LENS)],
                "batch_sizes": [min(BATCH_SIZES), max(BATCH_SIZES)],
                "levels": [1, LIMITS.max_steps],
                "max_items": MAX_ITEMS,
            },
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 1 if mismatches else 0


def run_cases(count: int, rng: np.random.Generator) -> Iterator[tuple[Case, BeamResult, PreTrainedModel]]:
    """Random cases with the engine's answers, batch by batch, over a model of each family in turn."""
    models = [make_model(family, head_dim=8, vocab_size=VOCAB_SIZE) for family in FAMILIES]
    with tempfile.TemporaryDirectory() as directory:
        engines = [
            BeamEngine(load_decoder(write_checkpoint(model, Path(directory) / family)), LIMITS)
            for family, model in zip(FAMILIES, models, strict=True)
        ]
    batch_number = 0
    while count > 0:
        batch = [random_case(rng) for _ in range(min(count, rng.choice(BATCH_SIZES)))]
        turn = batch_number % len(FAMILIES)
        for case, result in zip(batch, engines[turn].search([case.request for case in batch]), strict=True):
            yield case, result, models[turn]
        count -= len(batch)
        batch_number += 1


def random_case(rng: np.random.Generator) -> Case:
    """Few or many items, 1 to 5 levels, codebooks of 1 to 32."""
    codebook_sizes = tuple(rng.integers(1, 33, rng.integers(1, LIMITS.max_steps + 1)).tolist())
    num_items = int(np.exp(rng.uniform(0.0, np.log(MAX_ITEMS))))
    catalogue = Catalogue.random(rng, codebook_sizes, num_items, VOCAB_SIZE)
    request = BeamRequest(
        prompt=rng.integers(0, VOCAB_SIZE, rng.choice(PROMPT_LENS)),
        beam_width=int(rng.choice(WIDTHS)),
        constraint=catalogue.constraint,
        score_space=list(ScoreSpace)[rng.integers(3)],
    )
    return Case(catalogue, request)


def judge(case: Case, result: BeamResult, model: PreTrainedModel, tally: Tally) -> None:
    """Hold one answer against both oracles, and say on stderr what differs."""
    prompt, catalogue, request = case.request.prompt.tolist(), case.catalogue, case.request
    expected = recompute_beam(
        next_token_logits(model, prompt),
        catalogue.children,
        catalogue.num_levels,
        request.beam_width,
        request.score_space,
        catalogue.level_tokens,
    )
    everything = score_every_item(model, prompt, catalogue, request.score_space)
    comparison = compare(result, expected)
    faults = comparison.faults + certificate_faults(result, everything)
    if request.beam_width >= catalogue.widest:
        faults += compare(result, Search(everything)).faults
        tally.unpruned += 1
    tally.cases += 1
    tally.mismatches += bool(faults)
    tally.near_calls += comparison.is_near_call
    tally.proven += result.proven_count
    tally.answers += len(result.scores)
    tally.max_score_difference = max(tally.max_score_difference, comparison.max_score_difference)
    for fault in faults:
        print(f"W={request.beam_width} {request.score_space.value} prompt={prompt}: {fault}", file=sys.stderr)


def print_table(tallies: dict[ScoreSpace, Tally]) -> None:
    """For people, on stdout."""
    table = Table(title="engine against exhaustive search and recomputed beam search")
    table.add_column("score space")
    for heading in ("cases", "mismatches", "near calls", "unpruned", "proven", "max error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for space, tally in tallies.items():
        table.add_row(
            space.value,
            str(tally.cases),
            str(tally.mismatches),
            str(tally.near_calls),
            str(tally.unpruned),
            f"{tally.proven / max(tally.answers, 1):.1%}",
            f"{tally.max_score_difference:.1e}",
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
