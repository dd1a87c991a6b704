"""What the engine is asked and what it answers. No items, no gRPC: token ids and constraints in, beams out."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_service.engine.generation import Generation

if TYPE_CHECKING:
    from recall_service.engine.constraint import TokenRange, TrieConstraint


class ScoreSpace(StrEnum):
    """What log-probabilities are normalised over."""

    VOCABULARY = "VOCABULARY"  # the model's whole vocabulary: the teacher-forced log-probability
    CODEBOOK = "CODEBOOK"  # the level's own codebook tokens
    CATALOG = "CATALOG"  # the legal children: exp(score) sums to 1 over the catalogue


class SearchMode(StrEnum):
    """How a catalogue is searched."""

    BEAM = "BEAM"  # classic beam search: the best beam_width prefixes of each level
    PROVEN = "PROVEN"  # goes back to what the beam pruned, until the results are proven to be the true top


class Priority(IntEnum):
    """Who waits for whom when not all fits: less goes first, and waiting counts as priority."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a search will ask of an engine, as far as that can be told before its prompt is made.

    prompt_len: in tokens, at most. path_len, deadline: as in BeamRequest.
    """

    prompt_len: int
    beam_width: int
    path_len: int
    priority: Priority
    deadline: float | None

    @property
    def work(self) -> int:
        """How many tokens the model is run on, more or less: the prompt's, and a row a beam for every level but one."""
        return self.prompt_len + self.beam_width * (self.path_len - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BeamRequest:
    """One search, of a catalogue or of the whole vocabulary: exactly one of constraint and generation is given.

    prompt: int64 [prompt_len], at least one token id.
    constraint: the catalogue to search.
    generation: how a search of the whole vocabulary goes on and ends.
    num_results: how many complete paths to return; 0 for beam_width. A BEAM has no more than its width.
    search_mode: of a catalogue; a search of the whole vocabulary is a BEAM.
    row_budget: after how many rows a PROVEN search proves no more, counted as in rows_forwarded; its first beam runs to
        the end whatever the budget. 0 leaves it to the engine: what four plain beams forward, as far as slots reach.
    deadline: seconds of `time.monotonic()`, or None.
    with_ranks: also return the rank of every chosen token.
    priority: never changes an answer.
    """

    prompt: NDArray[np.int64]
    beam_width: int
    constraint: "TrieConstraint | None" = None
    generation: Generation | None = None
    score_space: ScoreSpace = ScoreSpace.VOCABULARY
    num_results: int = 0
    search_mode: SearchMode = SearchMode.BEAM
    row_budget: int = 0
    deadline: float | None = None
    with_ranks: bool = False
    priority: Priority = Priority.NORMAL

    @property
    def path_len(self) -> int:
        """How many tokens the longest path has: one a level, or what a free search asks for; 0 if none is asked for."""
        if self.constraint is not None:
            return self.constraint.num_steps
        return 0 if self.generation is None else self.generation.max_new_tokens

    @property
    def demand(self) -> Demand:
        """What it asks of an engine."""
        return Demand(
            prompt_len=len(self.prompt),
            beam_width=self.beam_width,
            path_len=self.path_len,
            priority=self.priority,
            deadline=self.deadline,
        )

    @property
    def is_plain_beam(self) -> bool:
        """A catalogue, level by level, and nothing more."""
        return self.constraint is not None and self.search_mode is SearchMode.BEAM

    def tokens_needed(self, level: int) -> "TokenRange | None":
        """The tokens whose logits the score space needs at a level of the catalogue; None: the whole vocabulary."""
        if self.constraint is None or self.score_space is ScoreSpace.VOCABULARY:
            return None
        return self.constraint.token_range(level)

    @property
    def slots_needed(self) -> int:
        """Beam slots for the worst case: every row with ancestors of its own; the last token is never forwarded.

        Anything may descend from any row of a PROVEN search until it ends; the prompt counts as a row and takes none.
        """
        of_beam = self.beam_width * (self.path_len - 1)
        return max(of_beam, self.row_budget - 1) if self.search_mode is SearchMode.PROVEN else of_beam


class StepTimes(NamedTuple):
    """One forward of a search's rows, and the selection of what is below; instants in seconds of `time.monotonic()`.

    depth: of the deepest of the rows; 0 is the prompt's. forwarded: when the forward ended.
    select_seconds: this search's own selection; others of the same step may have come before it.
    """

    depth: int
    rows: int
    started: float
    forwarded: float
    ended: float
    select_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class BeamResult:
    """The beams of one search, best first; ties as `search` states them.

    tokens: int64 [n, steps], n = min(beam_width, complete paths of positive probability that were reached).
        In a free search with stop tokens steps is the longest length, and shorter paths end in -1.
    lengths: int64 [n], how many tokens each path has.
    scores: float32 [n], the sum of log_probs; in a free search that sum / length ** length_penalty.
    log_probs: float32 [n, steps], 0 beyond a path's length.
    ranks: int32 [n, steps] when asked for: 1 + number of tokens of the score space with a greater logit; 0 beyond
        a path's length.
    leaves: int64 [n], the trie leaf of each beam; None in a free search.
    bound: the best score that any pruned candidate had; -inf when nothing was ever pruned. No complete path outside
        this answer scores more. With stop tokens it is inf: a longer path may score more than its beginning, and an
        early stop looks no further.
    proven_count: how many leading beams beat `bound`: the true top of the whole space under the model. With stop
        tokens none is proven.
    rows_forwarded: how many rows the model ran on, the prompt counted as one.
    rows_skipped: how many rows of the beam it was not run on, for they could not change the answer.
    cached_prompt_tokens: the beginning of the prompt that an earlier request had run already.
    submitted: seconds of `time.monotonic()`; what follows it in time is queue, prefill and decode, without a gap.
    steps: every forward in order, where the host sees them end; empty on a GPU, which runs behind the host's back.
    """

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    scores: NDArray[np.float32]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32] | None
    leaves: NDArray[np.int64] | None
    bound: float
    proven_count: int
    rows_forwarded: int
    rows_skipped: int
    cached_prompt_tokens: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    submitted: float
    steps: tuple[StepTimes, ...]

    @property
    def select_seconds(self) -> float | None:
        """How much of `decode_seconds` went into selection; None where that cannot be told apart."""
        return sum(step.select_seconds for step in self.steps) if self.steps else None
