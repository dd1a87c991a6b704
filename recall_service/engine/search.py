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
    """

    paths: Hypotheses
    bound: float
    proven_count: int
    rows_skipped: int = 0


class Search(Protocol):
    """One request's search. The engine forwards what `advance` asks for, until it asks for nothing."""

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """The rows to forward next, in groups of equal depth; none when the search is over.

        Raises ModelOutputError when the logits are not numbers.
        """

    def held_slots(self) -> list[Tensor]:
        """Slots that rows not being forwarded still descend from: int64, any shape."""

    def found(self) -> Found:
        """The outcome; only after `advance` asked for nothing."""
