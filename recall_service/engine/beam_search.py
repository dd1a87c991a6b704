"""Classic beam search of one request: the best rows of each level, level after level.

The last level's rows are forwarded in two groups, for a path never scores more than its beginnings: once as many
complete paths are known as are asked for, rows that score less than all of these lead nowhere that matters.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.expansion import best_children
from recall_service.engine.hypotheses import Hypotheses
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Forwarded, Found

# How many of the last level's rows are forwarded first. On a trained model and a real catalogue the first 1.0 a result
# hold nearly all the answers, but cannot show that: with 1.5, what remains matters to almost nobody.
_FIRST_PER_RESULT = 1.5


class BeamSearch:
    """Classic beam search of a catalogue: the top `beam_width` of each level, all levels; of the last, `num_results`.

    skip_rows: forward no row of the last level that cannot change the answer. One that scores the same as the worst
    answer is forwarded, although it comes after that one: whether it leads to an equal score decides what is proven.
    """

    def __init__(self, request: BeamRequest, device: torch.device, *, skip_rows: bool) -> None:
        self._request = request
        self._num_results = min(request.num_results or request.beam_width, request.beam_width)
        self._skip_rows = skip_rows
        self._bound = torch.tensor(-torch.inf, device=device)
        self._paths = Hypotheses.none(device)
        self._waiting = BeamRows.root(device).gather(slice(0))  # rows of the last level, all after those forwarded
        self._rows_skipped = 0

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """See Search."""
        (group,) = forwarded
        levels_left = self._request.path_len - group.rows.depth - 1
        width = self._request.beam_width if levels_left else self._num_results
        children, best_pruned = best_children(self._request, group, width)
        self._bound = torch.maximum(self._bound, best_pruned)
        if not levels_left:
            self._keep_best(Hypotheses.of(children))
            children = self._take_hopeful()
        elif levels_left == 1 and self._skip_rows:
            num_first = int(_FIRST_PER_RESULT * self._num_results)
            self._waiting = children.gather(slice(num_first, None))
            children = children.gather(slice(num_first))
        return [children] if len(children) else []

    def held_slots(self) -> list[Tensor]:
        """See Search."""
        return [self._waiting.slots]

    def is_ready(self, *, wait: bool) -> bool:  # noqa: ARG002  it never has to wait
        """See Search."""
        return True

    def found(self) -> Found:
        """See Search."""
        bound = float(self._bound)
        return Found(self._paths, bound, self._paths.num_above(bound), self._rows_skipped)

    def _keep_best(self, paths: Hypotheses) -> None:
        """Of equal scores, paths of rows that were forwarded sooner come first: their parents rank higher."""
        known = self._paths.joined(paths)
        self._paths = known.first(self._num_results)
        self._raise_bound(known.scores[self._num_results :])

    def _take_hopeful(self) -> BeamRows:
        """The waiting rows that may still lead to an answer; the others are skipped."""
        hopeful = self._waiting
        if len(self._paths.scores) == self._num_results:
            num_hopeful = int((hopeful.score >= self._paths.scores[-1]).sum())
            self._raise_bound(hopeful.score[num_hopeful:])
            self._rows_skipped += len(hopeful) - num_hopeful
            hopeful = hopeful.gather(slice(num_hopeful))
        self._waiting = self._waiting.gather(slice(0))
        return hopeful

    def _raise_bound(self, scores: Tensor) -> None:
        """No path outside the answer scores more than the bound; `scores`, best first, stand for some of them."""
        self._bound = torch.cat([self._bound[None], scores[:1]]).amax()
