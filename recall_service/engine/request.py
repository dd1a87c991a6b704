"""What the engine is asked and what it answers. No items, no gRPC: token ids and constraints in, beams out."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from recall_service.engine.constraint import TrieConstraint


class ScoreSpace(Enum):
    """What log-probabilities are normalised over."""

    VOCABULARY = "VOCABULARY"  # the model's whole vocabulary: the teacher-forced log-probability
    CODEBOOK = "CODEBOOK"  # the level's own codebook tokens
    CATALOG = "CATALOG"  # the legal children: exp(score) sums to 1 over the catalogue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BeamRequest:
    """One search.

    prompt: int64 [prompt_len], at least one token id.
    constraint: the catalogue to search; None searches the whole vocabulary for `num_steps` tokens.
    num_steps: how many tokens to generate in a free search; with a constraint, its number of levels.
    deadline: seconds of `time.monotonic()`, or None.
    with_ranks: also return the rank of every chosen token.
    """

    prompt: NDArray[np.int64]
    beam_width: int
    constraint: "TrieConstraint | None" = None
    num_steps: int = 0
    score_space: ScoreSpace = ScoreSpace.VOCABULARY
    deadline: float | None = None
    with_ranks: bool = False

    @property
    def path_len(self) -> int:
        """How many tokens a path has: one a level, or what a free search asks for."""
        return self.num_steps if self.constraint is None else self.constraint.num_steps


@dataclass(frozen=True, slots=True, eq=False)
class BeamResult:
    """The beams of one search, best first; ties as `search` states them.

    tokens: int64 [n, steps], n = min(beam_width, complete paths of positive probability that were reached).
    scores: float32 [n], the sum of log_probs.
    log_probs: float32 [n, steps].
    ranks: int32 [n, steps] when asked for: 1 + number of tokens of the score space with a greater logit.
    leaves: int64 [n], the trie leaf of each beam; None in a free search.
    bound: the best score that any pruned candidate had; -inf when nothing was ever pruned. No complete path outside
        this answer scores more.
    proven_count: how many leading beams beat `bound`: the true top of the whole space under the model.
    rows_forwarded: how many rows the model ran on, the prompt counted as one.
    """

    tokens: NDArray[np.int64]
    scores: NDArray[np.float32]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32] | None
    leaves: NDArray[np.int64] | None
    bound: float
    proven_count: int
    rows_forwarded: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
