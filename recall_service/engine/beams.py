"""The state of all live beams as arrays: one row is one beam, and everything a row owns moves in one gather."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

NO_SLOT = -1


@dataclass(frozen=True, slots=True, eq=False)
class BeamRows:
    """Rows of all running requests, each request's rows together and best first.

    depth: int64 [rows], tokens generated so far. node: int64 [rows], trie node at that depth.
    score: float32 [rows], sum of log_probs.
    tokens int64, log_probs float32, ranks int32: [rows, max_steps], filled up to depth.
    slots: int64 [rows, max_steps], beam slot of each generated token that was forwarded, else NO_SLOT.
    """

    depth: Tensor
    node: Tensor
    score: Tensor
    tokens: Tensor
    log_probs: Tensor
    ranks: Tensor
    slots: Tensor

    def __len__(self) -> int:
        return len(self.depth)

    @staticmethod
    def roots(count: int, max_steps: int, device: torch.device) -> "BeamRows":
        """One row at the root for each of `count` requests."""
        per_step = (count, max_steps)
        return BeamRows(
            depth=torch.zeros(count, dtype=torch.int64, device=device),
            node=torch.zeros(count, dtype=torch.int64, device=device),
            score=torch.zeros(count, dtype=torch.float32, device=device),
            tokens=torch.zeros(per_step, dtype=torch.int64, device=device),
            log_probs=torch.zeros(per_step, dtype=torch.float32, device=device),
            ranks=torch.zeros(per_step, dtype=torch.int32, device=device),
            slots=torch.full(per_step, NO_SLOT, dtype=torch.int64, device=device),
        )

    def first(self, count: int) -> "BeamRows":
        """The first `count` rows, sharing memory with these."""
        return BeamRows(*(getattr(self, field.name)[:count] for field in fields(self)))

    def gather(self, rows: Tensor) -> "BeamRows":
        """New rows that own copies of what the named rows (int64, repeats welcome) own."""
        return BeamRows(*(getattr(self, field.name)[rows] for field in fields(self)))

    def append(self, other: "BeamRows") -> "BeamRows":
        """These rows, then the other's."""
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return BeamRows(*(torch.cat(pair) for pair in pairs))

    def last_tokens(self) -> Tensor:
        """int64 [rows]: the token each row generated last. Only for rows of depth > 0."""
        return self.tokens.gather(1, self.depth[:, None] - 1).squeeze(1)

    def descend(self, parents: Tensor, tokens: Tensor, nodes: Tensor, log_probs: Tensor, ranks: Tensor) -> "BeamRows":
        """The rows one level below: child i descends from row parents[i] by tokens[i] to nodes[i]."""
        rows = self.gather(parents)
        column = rows.depth[:, None]
        return BeamRows(
            depth=rows.depth + 1,
            node=nodes,
            score=rows.score + log_probs,
            tokens=rows.tokens.scatter(1, column, tokens[:, None]),
            log_probs=rows.log_probs.scatter(1, column, log_probs[:, None]),
            ranks=rows.ranks.scatter(1, column, ranks[:, None]),
            slots=rows.slots,
        )
