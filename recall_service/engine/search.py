"""What the engine and the search of one request say to each other."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.hypotheses import Hypotheses


class Forwarded(NamedTuple):
    """Rows that were forwarded together, and their logits: [rows, tokens], in the model's dtype.

    first_token: the token of the first column; more columns than the score space needs are never computed.
    """

    rows: BeamRows
    logits: Tensor
    first_token: int = 0


class Found(NamedTuple):
    """What a search ended with: complete paths, best first, and what no path outside them scores more than.

    bound: -inf when there is no path outside; inf when nothing is known of those.
    proven_count: how many leading paths are the true top of all there are.
    rows_skipped: rows of the beam that were never forwarded, for they could not change the paths.
    rows_absent: rows that were forwarded to fill a shape and never existed.
    """

    paths: Hypotheses
    bound: float
    proven_count: int
    rows_skipped: int = 0
    rows_absent: int = 0


class Search(Protocol):
    """One request's search. The engine forwards what `advance` asks for, until it asks for nothing."""

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """The rows to forward next, in groups of equal depth; none when the search is over.

        Raises ModelOutputError when the logits are not numbers.
        """

    def held_slots(self) -> list[Tensor]:
        """Slots that rows not being forwarded still descend from: int64, any shape."""

    def is_ready(self, *, wait: bool) -> bool:
        """Whether the outcome is there, once `advance` asked for nothing; with `wait`, only once it is."""

    def found(self) -> Found:
        """The outcome; only when it is ready. Raises ModelOutputError when the logits were not numbers."""
