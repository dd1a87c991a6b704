"""Exact search of one request: a beam first, then whatever that beam pruned and may have been wrong about.

A path never scores more than its beginnings. So once `num_results` complete paths are known, the worst of them scoring
T, the true top `num_results` of the whole catalogue can only lie there or behind pruned prefixes that score T or more.
These are forwarded in rounds, best first, several depths in one round; T rises on the way. When none is left, the
answer is what a beam that never prunes would give, ties included: prefixes that score just T are gone into as well,
for a path behind them that scores T too may come first. That costs rows only where log-probabilities of exactly 0 meet.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.expansion import best_children
from recall_service.engine.frontier import Frontier
from recall_service.engine.hypotheses import Hypotheses
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Forwarded, Found


class ProvenSearch:
    """The true top `num_results`, or as much of it as `row_budget` rows can prove.

    The first beam runs to its end whatever the budget, so the answer is never worse than a beam's.
    """

    def __init__(self, request: BeamRequest, device: torch.device) -> None:
        self._request = request
        self._num_results = request.num_results or request.beam_width
        # Wider rounds forward more rows before T has risen, narrower ones are more rounds.
        self._round_width = (request.beam_width + 1) // 2
        self._rows_left = request.row_budget - 1  # the prompt is being forwarded
        self._beam_depth = 0
        self._frontier = Frontier(device)
        self._complete: BeamRows | None = None
        self._best_lost = torch.tensor(-torch.inf, device=device)  # of complete paths that were not good enough

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """See Search."""
        for group in forwarded:
            if group.rows.depth + 1 == self._request.path_len:
                self._complete_paths(group)
            else:
                self._extend_prefixes(group)
        self._frontier.drop_below(self._threshold())
        groups = self._next_of_beam() or self._frontier.take(min(self._round_width, self._more_rows))
        self._rows_left -= sum(map(len, groups))
        self._frontier.keep_best(self._more_rows)
        return groups

    def held_slots(self) -> list[Tensor]:
        """See Search."""
        return self._frontier.slots()

    def is_ready(self, *, wait: bool) -> bool:  # noqa: ARG002  it never has to wait
        """See Search."""
        return True

    def found(self) -> Found:
        """See Search."""
        unexplored = self._frontier.best
        paths = Hypotheses.none(unexplored.device) if self._complete is None else Hypotheses.of(self._complete)
        return Found(paths, float(torch.maximum(unexplored, self._best_lost)), paths.num_above(float(unexplored)))

    @property
    def _more_rows(self) -> int:
        """How many rows the budget allows beyond the beam's own."""
        return max(self._rows_left, 0)

    def _extend_prefixes(self, group: Forwarded) -> None:
        """Put the children of rows where the next groups are taken from: no more than can ever be forwarded."""
        children, best_pruned = best_children(self._request, group, self._request.beam_width + self._more_rows)
        self._frontier.add(children)
        self._frontier.best_dropped = torch.maximum(self._frontier.best_dropped, best_pruned)

    def _complete_paths(self, group: Forwarded) -> None:
        """Merge the children of the last level's rows into the best complete paths."""
        children, best_pruned = best_children(self._request, group, self._num_results)
        known = children if self._complete is None else BeamRows.concatenate([self._complete, children])
        known = known.in_tie_order()
        self._complete = known.gather(slice(self._num_results))
        lost = known.score[self._num_results :]
        self._best_lost = torch.cat([self._best_lost[None], best_pruned[None], lost[:1]]).amax()

    def _next_of_beam(self) -> list[BeamRows]:
        """The beam's next level; nothing once its last level was forwarded."""
        if self._beam_depth == self._request.path_len - 1:
            return []
        self._beam_depth += 1
        return self._frontier.take(self._request.beam_width, self._beam_depth)

    def _threshold(self) -> Tensor:
        """The worst score that a complete path needs to be among the results, as far as is known."""
        if self._complete is None or len(self._complete) < self._num_results:
            return self._best_lost.new_tensor(-torch.inf)
        return self._complete.score[-1]
