"""Classic beam search of one request: the best rows of each level, level after level."""

from collections.abc import Sequence

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Forwarded, Found
from recall_service.engine.selection import select_beams


class BeamSearch:
    """Classic beam search: the top `beam_width` of each level, all levels."""

    def __init__(self, request: BeamRequest, device: torch.device) -> None:
        self._request = request
        self._bound = torch.tensor(-torch.inf, device=device)
        self._rows = BeamRows.root(device)

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """See Search."""
        ((rows, logits),) = forwarded
        request = self._request
        picked = select_beams(
            logits,
            rows.score,
            rows.node,
            level=rows.depth,
            width=request.beam_width,
            constraint=request.constraint,
            score_space=request.score_space,
            with_ranks=request.with_ranks,
        )
        self._bound = torch.maximum(self._bound, picked.best_pruned)
        self._rows = rows.descend(picked.parents, picked.tokens, picked.nodes, picked.log_probs, picked.ranks)
        is_over = self._rows.depth == request.path_len or not len(self._rows)
        return [] if is_over else [self._rows]

    def held_slots(self) -> list[Tensor]:
        """See Search: every row that matters is being forwarded."""
        return []

    def found(self) -> Found:
        """See Search."""
        return Found(self._rows, float(self._bound))
