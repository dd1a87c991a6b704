"""Beam search of one request over the whole vocabulary: paths end at stop tokens, or at the longest length.

Step for step what transformers' `generate(num_beams=beam_width, do_sample=False)` does (5.24, `_beam_search`), without
its placeholders: it starts from one row, so where fewer continuations are possible than beams are asked for, there are
fewer rows, never duplicates. Two things it does not take over: a beam width of one is the same search and no greedy
special case (they differ for early_stopping "never" alone, where greedy search would not look beyond its first path),
and the temperature applies, which `generate` ignores unless it samples.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.expansion import best_children
from recall_service.engine.generation import Generation
from recall_service.engine.hypotheses import Hypotheses
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Forwarded, Found


class FreeSearch:
    """The `beam_width` best live rows, and the `beam_width` best paths that have ended."""

    def __init__(self, request: BeamRequest, generation: Generation, device: torch.device) -> None:
        self._request = request
        self._generation = generation
        self._stop_tokens = torch.tensor(sorted(generation.stop_tokens), dtype=torch.int64, device=device)
        self._bound = torch.tensor(-torch.inf, device=device)
        self._live = BeamRows.root(device)
        self._ended = Hypotheses.none(device)

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """See Search."""
        (group,) = forwarded
        width, length = self._request.beam_width, group.rows.depth + 1
        children = self._best_children(group)
        ends = torch.isin(children.tokens[:, -1], self._stop_tokens) | (length == self._generation.max_new_tokens)
        ended = children.gather(torch.nonzero(ends[:width]).squeeze(1))
        self._ended = self._ended.joined(Hypotheses.of(ended, self._generation.normaliser(length))).first(width)
        self._live = children.gather(torch.nonzero(~ends).squeeze(1)[:width])
        return [] if self._is_over(length) else [self._live]

    def held_slots(self) -> list[Tensor]:
        """See Search: paths that have ended are never read again."""
        return []

    def is_ready(self, *, wait: bool) -> bool:  # noqa: ARG002  it never has to wait
        """See Search."""
        return True

    def found(self) -> Found:
        """See Search."""
        num_results = self._request.num_results or self._request.beam_width
        paths, bound = self._ended.first(num_results), self._answer_bound(num_results)
        return Found(paths, bound, paths.num_above(bound))

    def _best_children(self, group: Forwarded) -> BeamRows:
        """As many of the best continuations as hold `beam_width` live ones, should every row's stop tokens lead."""
        generation = self._generation
        if generation.temperature != 1.0:
            group = group._replace(logits=group.logits.float() / generation.temperature)
        count = self._request.beam_width * (1 + len(generation.stop_tokens))
        children, best_pruned = best_children(self._request, group, count)
        self._bound = torch.maximum(self._bound, best_pruned)
        return children

    def _is_over(self, length: int) -> bool:
        """Whether no live row is left, or none is taken to be able to improve on what has ended."""
        generation = self._generation
        if not len(self._live):
            return True
        if len(self._ended.scores) < self._request.beam_width:
            return False
        best_live = self._live.score[0] / generation.normaliser(generation.best_length(length))
        return generation.early_stopping is True or bool(best_live <= self._ended.scores[-1])

    def _answer_bound(self, num_results: int) -> float:
        """The best normalised score of what is not in the answer; of paths of many lengths nothing is known."""
        generation = self._generation
        if not generation.is_fixed_length:
            return float("inf")
        pruned = self._bound / generation.normaliser(generation.max_new_tokens)
        return float(torch.cat([pruned[None], self._ended.scores[num_results:]]).max())
