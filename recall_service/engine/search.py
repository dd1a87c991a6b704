"""What the engine and the search of one request say to each other."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from recall_service.engine.beams import BeamRows


class Forwarded(NamedTuple):
    """Rows that were forwarded together, and their logits: float32 [rows, vocab]."""

    rows: BeamRows
    logits: Tensor


class Found(NamedTuple):
    """What a search ended with: complete rows, best first, and the best score ever pruned (-inf: nothing was)."""

    rows: BeamRows
    bound: float


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
