"""The state of live beams as arrays: one row is one beam, and everything a row owns moves in one gather."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class BeamRows:
    """Rows of one request that stand at one depth, best first.

    node: int64 [rows], trie node at that depth. score: float32 [rows], sum of log_probs.
    tokens int64, log_probs float32, ranks int32: [rows, depth], what was generated.
    slots: int64 [rows, depth] once the rows were forwarded, [rows, depth - 1] before: the beam slot of each token.
    """

    node: Tensor
    score: Tensor
    tokens: Tensor
    log_probs: Tensor
    ranks: Tensor
    slots: Tensor

    def __len__(self) -> int:
        return len(self.node)

    @property
    def depth(self) -> int:
        """How many tokens each row generated."""
        return self.tokens.shape[1]

    @staticmethod
    def root(device: torch.device) -> "BeamRows":
        """The one row that has generated nothing yet; its KV is the prompt's."""
        return BeamRows(
            node=torch.zeros(1, dtype=torch.int64, device=device),
            score=torch.zeros(1, dtype=torch.float32, device=device),
            tokens=torch.zeros((1, 0), dtype=torch.int64, device=device),
            log_probs=torch.zeros((1, 0), dtype=torch.float32, device=device),
            ranks=torch.zeros((1, 0), dtype=torch.int32, device=device),
            slots=torch.zeros((1, 0), dtype=torch.int64, device=device),
        )

    @staticmethod
    def absent(count: int, depth: int, slot: int, device: torch.device) -> "BeamRows":
        """Rows that do not exist: score -inf. Lawful tokens, and a slot that is nobody's, stand for theirs."""
        path = torch.zeros((count, depth), dtype=torch.int64, device=device)
        return BeamRows(
            node=torch.zeros(count, dtype=torch.int64, device=device),
            score=torch.full((count,), -torch.inf, device=device),
            tokens=path,
            log_probs=path.float(),
            ranks=path.int(),
            slots=torch.full_like(path, slot),
        )

    def with_own_slots(self, own: Tensor) -> "BeamRows":
        """The same rows, with the slots int64 [rows] that their last tokens' KV goes to."""
        slots = torch.cat([self.slots, own[:, None]], dim=1)
        return BeamRows(self.node, self.score, self.tokens, self.log_probs, self.ranks, slots)

    def gather(self, rows: Tensor | slice) -> "BeamRows":
        """New rows that own copies of what the named rows (int64, repeats welcome; or a mask; or a slice) own."""
        return BeamRows(
            self.node[rows],
            self.score[rows],
            self.tokens[rows],
            self.log_probs[rows],
            self.ranks[rows],
            self.slots[rows],
        )

    def descend(self, parents: Tensor, tokens: Tensor, nodes: Tensor, log_probs: Tensor, ranks: Tensor) -> "BeamRows":
        """The rows one level below: child i descends from row parents[i] by tokens[i] to nodes[i]."""
        rows = self.gather(parents)
        return BeamRows(
            node=nodes,
            score=rows.score + log_probs,
            tokens=torch.cat([rows.tokens, tokens[:, None]], dim=1),
            log_probs=torch.cat([rows.log_probs, log_probs[:, None]], dim=1),
            ranks=torch.cat([rows.ranks, ranks[:, None]], dim=1),
            slots=rows.slots,
        )

    def with_scores(self, scores: Tensor) -> "BeamRows":
        """The same rows with other scores, float32 [rows]."""
        return BeamRows(self.node, scores, self.tokens, self.log_probs, self.ranks, self.slots)

    def parts(self) -> list[Tensor]:
        """Everything a row owns, in the order of the fields."""
        return [getattr(self, part.name) for part in fields(BeamRows)]

    def clone(self) -> "BeamRows":
        """The same rows in memory of their own."""
        return BeamRows(*(part.clone() for part in self.parts()))

    @staticmethod
    def concatenate(groups: Sequence["BeamRows"]) -> "BeamRows":
        """The rows of several groups of one depth, group after group."""
        return BeamRows(*map(torch.cat, zip(*(rows.parts() for rows in groups), strict=True)))

    def in_tie_order(self) -> "BeamRows":
        """The same rows as a beam that never prunes ranks them: score descending, then rank of the parent, then code.

        Who the parents are need not be known: their ranks follow from the scores of a row's prefixes, and the nodes of
        a depth lie in the order of their paths of codes. For rows of a trie alone.
        """
        order = self.node.argsort()
        prefix_score = torch.zeros_like(self.score)
        for log_probs in self.log_probs.unbind(1):  # from the least to the most significant key, by stable sorts
            prefix_score = prefix_score + log_probs
            order = order[prefix_score[order].argsort(descending=True, stable=True)]
        return self.gather(order)
