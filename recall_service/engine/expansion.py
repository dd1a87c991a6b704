"""One level down: the best continuations of rows that were just forwarded."""

from typing import NamedTuple

from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Forwarded
from recall_service.engine.selection import select_beams


class Expansion(NamedTuple):
    """The children kept, best first, and the best score among those that were not: a 0-dim float32, -inf for none."""

    children: BeamRows
    best_pruned: Tensor


def best_children(request: BeamRequest, forwarded: Forwarded, count: int) -> Expansion:
    """The best `count` legal continuations of the rows. Raises ModelOutputError when the logits are not numbers."""
    rows = forwarded.rows
    picked = select_beams(
        forwarded.logits,
        rows.score,
        rows.node,
        level=rows.depth,
        width=count,
        constraint=request.constraint,
        score_space=request.score_space,
        with_ranks=request.with_ranks,
        first_token=forwarded.first_token,
    )
    children = rows.descend(picked.parents, picked.tokens, picked.nodes, picked.log_probs, picked.ranks)
    return Expansion(children, picked.best_pruned)
