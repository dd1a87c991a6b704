"""Complete paths of one request as arrays: one row is one path, of whatever length."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.beams import BeamRows
from recall_service.engine.constraint import NO_TOKEN


class Hypotheses(NamedTuple):
    """Paths that have ended, best first.

    lengths: int64 [paths], how many tokens each has. nodes: int64 [paths], trie leaves, where there is a trie.
    scores: float32 [paths].
    tokens int64, log_probs float32, ranks int32: [paths, longest]; NO_TOKEN, 0 and 0 beyond a path's length.
    """

    lengths: Tensor
    nodes: Tensor
    scores: Tensor
    tokens: Tensor
    log_probs: Tensor
    ranks: Tensor

    @staticmethod
    def of(rows: BeamRows, normaliser: float = 1.0) -> "Hypotheses":
        """Rows that end where they stand, each with its score divided by `normaliser`."""
        lengths = torch.full_like(rows.node, rows.depth)
        return Hypotheses(lengths, rows.node, rows.score / normaliser, rows.tokens, rows.log_probs, rows.ranks)

    @staticmethod
    def none(device: torch.device) -> "Hypotheses":
        """No path has ended yet."""
        return Hypotheses.of(BeamRows.root(device)).first(0)

    def first(self, count: int) -> "Hypotheses":
        """The best `count` of these."""
        return Hypotheses(*(part[:count] for part in self))

    def num_above(self, score: float) -> int:
        """How many of these score more."""
        return int((self.scores > score).sum())

    def joined(self, others: "Hypotheses") -> "Hypotheses":
        """All paths of both by score; of equal ones, first these, then the others, each as they were."""
        longest = max(self.tokens.shape[1], others.tokens.shape[1])
        order = torch.cat([self.scores, others.scores]).argsort(descending=True, stable=True)
        both = zip(self._padded(longest), others._padded(longest), strict=True)
        return Hypotheses(*(torch.cat(parts)[order] for parts in both))

    def _padded(self, longest: int) -> "Hypotheses":
        padding = (0, longest - self.tokens.shape[1])
        return self._replace(
            tokens=functional.pad(self.tokens, padding, value=NO_TOKEN),
            log_probs=functional.pad(self.log_probs, padding),
            ranks=functional.pad(self.ranks, padding),
        )
