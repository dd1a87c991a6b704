"""Our engine over the benchmarks' workload: one decoder, one catalogue, and a timed search for each cell of a grid."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.workload import Workload, prepare_catalog
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.engine import BeamEngine, StepReport
from recall_service.engine.generation import Generation
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamRequest
from recall_service.engine.scheduler import EngineLimits

FREE, CONSTRAINED = "free", "constrained"
MODES = (FREE, CONSTRAINED)


class Cell(NamedTuple):
    """One search of a grid. prompt: its length in tokens."""

    prompt: int
    width: int
    new_tokens: int


class SearchTimes(NamedTuple):
    """One search: seconds by stage, selection being part of decode, and the rows of each forward after the prompt's."""

    seconds: float
    prefill_seconds: float
    decode_seconds: float
    selection_seconds: float
    decode_rows: tuple[int, ...]
    top_score: float


@dataclass(slots=True)
class Searches:
    """What every cell shares. engine: fields of BeamEngine; limits: fields of EngineLimits other than its sizes."""

    workload: Workload
    decoder: Decoder
    constraint: TrieConstraint | None
    engine: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, workload: Workload, checkpoint: Path, catalog: Path | None, **loading: Any) -> "Searches":
        """Read what is on disk; without a catalogue every search is free. loading: arguments of load_decoder."""
        decoder = load_decoder(checkpoint, **loading)
        if catalog is None:
            return cls(workload, decoder, None)
        trie = prepare_catalog(workload, catalog).trie
        return cls(workload, decoder, TrieConstraint(trie, workload.level_tokens, decoder.device))

    def engine_for(self, cell: Cell) -> BeamEngine:
        """An engine with room for one search of this cell, and no more."""
        page_len = EngineLimits().page_len
        limits = EngineLimits(
            max_rows=cell.width,
            max_steps=cell.new_tokens,
            context_pages=-(-cell.prompt // page_len),
            **self.limits,
        )
        return BeamEngine(self.decoder, limits, **self.engine)

    def request(self, cell: Cell, mode: str, seed: int) -> BeamRequest:
        """A prompt of its own for every seed, so that nothing remembered can help."""
        prompt = self.workload.prompt(cell.prompt, seed)
        if mode == CONSTRAINED:
            return BeamRequest(prompt=prompt, beam_width=cell.width, constraint=self.constraint)
        generation = Generation(max_new_tokens=cell.new_tokens, length_penalty=0.0)
        return BeamRequest(prompt=prompt, beam_width=cell.width, generation=generation)


def timed_search(engine: BeamEngine, request: BeamRequest) -> SearchTimes:
    """Run one search alone in the engine. Selection is all that happens between forwards, whatever the search."""
    reports: list[StepReport] = []
    selections: list[float] = []
    advance = BeamEngine._advance

    def timed_advance(*arguments: Any) -> None:
        start = time.perf_counter()
        advance(*arguments)
        selections.append(time.perf_counter() - start)

    engine.observe_step = reports.append
    with patch.object(BeamEngine, "_advance", timed_advance):
        start = time.perf_counter()
        (result,) = engine.search([request])
        seconds = time.perf_counter() - start
    return SearchTimes(
        seconds=seconds,
        prefill_seconds=result.prefill_seconds,
        decode_seconds=result.decode_seconds,
        selection_seconds=sum(selections),
        decode_rows=tuple(report.rows for report in reports if report.phase == "decode"),
        top_score=float(result.scores[0]),
    )
