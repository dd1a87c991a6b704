"""One level down for several requests at once, at shapes that the host knows beforehand.

Every request has `width` rows at every depth but the root. A row that does not exist, because fewer paths are legal or
because the whole request is padding, scores -inf: it is no candidate, and nothing descends from it. Its token, node
and slots are lawful and mean nothing. So no count ever has to travel to the host between two levels.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.constraint import TokenRange, TrieConstraint
from recall_service.engine.fixed_selection import SelectionKernels, select_fixed
from recall_service.engine.request import BeamRequest, ScoreSpace


class LevelShape(NamedTuple):
    """What requests must have in common to go down a level together.

    depth: of the rows that are forwarded. tokens_needed: see `BeamRequest.tokens_needed`.
    """

    depth: int
    width: int
    constraint: TrieConstraint | None
    score_space: ScoreSpace
    with_ranks: bool
    tokens_needed: TokenRange | None

    @staticmethod
    def of(request: BeamRequest, depth: int) -> "LevelShape":
        """The shape of a request's rows at a depth."""
        return LevelShape(
            depth=depth,
            width=request.beam_width,
            constraint=request.constraint,
            score_space=request.score_space,
            with_ranks=request.with_ranks,
            tokens_needed=request.tokens_needed(depth),
        )


class Level(NamedTuple):
    """The rows below, flat [requests * width], best first within each request; and what was not taken.

    best_pruned: float32 [requests], -inf where nothing was pruned. invalid: bool [requests], where a row that exists
    had NaN or +inf for a logit. num_live: int64 [requests], how many of the rows exist.
    """

    rows: BeamRows
    best_pruned: Tensor
    invalid: Tensor
    num_live: Tensor

    def clone(self) -> "Level":
        """The same in memory of its own: the next replay of a captured step writes over this one's."""
        return Level(self.rows.clone(), *(part.clone() for part in (self.best_pruned, self.invalid, self.num_live)))

    def of_request(self, index: int) -> "Level":
        """One request's share."""
        width = len(self.rows) // len(self.invalid)
        rows = self.rows.gather(slice(index * width, (index + 1) * width))
        return Level(rows, *(part[index] for part in (self.best_pruned, self.invalid, self.num_live)))


def go_down(
    shape: LevelShape, rows: BeamRows, logits: Tensor, num_requests: int, first_token: int, kernels: SelectionKernels
) -> Level:
    """The best `width` legal continuations of each request's rows: flat [requests * rows], like their logits."""
    picked = select_fixed(
        logits,
        rows.score,
        rows.node,
        num_requests=num_requests,
        level=shape.depth,
        width=shape.width,
        constraint=shape.constraint,
        score_space=shape.score_space,
        with_ranks=shape.with_ranks,
        first_token=first_token,
        kernels=kernels,
    )
    first_rows = torch.arange(num_requests, device=logits.device) * (len(rows) // num_requests)
    parents = (picked.parents + first_rows[:, None]).flatten()
    children = rows.descend(
        parents, picked.tokens.flatten(), picked.nodes.flatten(), picked.log_probs.flatten(), picked.ranks.flatten()
    ).with_scores(picked.scores.flatten())
    num_live = (picked.scores > -torch.inf).sum(-1)
    return Level(children, picked.best_pruned, picked.invalid, num_live)
