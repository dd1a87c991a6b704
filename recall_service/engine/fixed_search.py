"""Beam search of one request at fixed shapes: what a GPU runs, for nothing here asks it for a value on the way.

The answer is that of `BeamSearch` without skipped rows: rows cost little there, and to know which could be skipped the
host would have to wait.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.fixed_level import Level, LevelShape, go_down
from recall_service.engine.fixed_selection import SelectionKernels
from recall_service.engine.hypotheses import Hypotheses
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Forwarded, Found
from recall_service.engine.transfer import Landing
from recall_service.errors import ModelOutputError


def has_fixed_shapes(request: BeamRequest) -> bool:
    """Whether every depth of a request's search has as many rows as the host can know: no early end, no rounds.

    And whether it looks like other requests' to the kernels: what one request excludes is its own.
    """
    generation, constraint = request.generation, request.constraint
    if generation is None:
        return request.is_plain_beam and constraint is not None and not constraint.has_exclusions
    return generation.is_fixed_length and generation.temperature == 1.0


class FixedBeamSearch:
    """The top `beam_width` of every level, of a catalogue or of the whole vocabulary."""

    def __init__(self, request: BeamRequest, kernels: SelectionKernels) -> None:
        self._request = request
        self._kernels = kernels
        self._certificates: list[tuple[Tensor, ...]] = []  # of every level, all of it but its rows
        self._landing: Landing | None = None

    def advance(self, forwarded: Sequence[Forwarded]) -> list[BeamRows]:
        """See Search. Asked for the root alone: what follows goes down together with other requests, see `take`."""
        (group,) = forwarded
        shape = LevelShape.of(self._request, group.rows.depth)
        return self.take(go_down(shape, group.rows, group.logits, 1, group.first_token, self._kernels).of_request(0))

    def take(self, level: Level) -> list[BeamRows]:
        """Go on from one request's share of a level: its rows are to be forwarded next, unless they are complete."""
        self._certificates.append(level[1:])
        if level.rows.depth < self._request.path_len:
            return [level.rows]
        certificate = map(torch.stack, zip(*self._certificates, strict=True))
        self._landing = Landing([*level.rows.parts(), *certificate])
        return []

    def held_slots(self) -> list[Tensor]:
        """See Search."""
        return []

    def is_ready(self, *, wait: bool) -> bool:
        """See Search."""
        return self._landing is not None and self._landing.has_landed(wait=wait)

    def found(self) -> Found:
        """See Search."""
        assert self._landing is not None, "asked for before the search was over"
        *parts, best_pruned, invalid, num_live = self._landing.tensors
        if bool(invalid.any()):
            raise ModelOutputError("the model's logits hold NaN or +inf; check the checkpoint and the prompt")
        rows = BeamRows(*parts).gather(slice(int(num_live[-1])))
        num_results = min(self._request.num_results or self._request.beam_width, self._request.beam_width)
        known = Hypotheses.of(rows, self._normaliser)
        bound = torch.cat([best_pruned / self._normaliser, known.scores[num_results:]]).max()
        paths = known.first(num_results)
        num_absent = self._request.beam_width * (len(num_live) - 1) - int(num_live[:-1].sum())
        return Found(paths, float(bound), paths.num_above(float(bound)), rows_absent=num_absent)

    @property
    def _normaliser(self) -> float:
        generation = self._request.generation
        return 1.0 if generation is None else generation.normaliser(generation.max_new_tokens)
