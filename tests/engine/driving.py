"""Short ways to ask the engine, and what must hold when it has nothing left to do."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from recall_service.engine.engine import BeamEngine
from recall_service.engine.generation import Generation
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import RecallError
from tests.oracles.path_decoder import PathDecoder
from tests.oracles.recompute_beam import Search, recompute_beam
from tests.oracles.tries import Catalogue

SPACES = tuple(ScoreSpace)
SMALL = EngineLimits(max_rows=512, max_steps=5, context_pages=64, page_len=4, max_prompt_tokens=64)


def ask(
    catalogue: Catalogue | None, prompt: Sequence[int] = (1, 2, 3), *, num_steps: int | None = None, **fields: Any
) -> BeamRequest:
    """A request over a catalogue, or a free search: `num_steps` asks for paths of so many tokens, scored by sum."""
    fields.setdefault("beam_width", 8)
    if num_steps is not None:
        fields["generation"] = Generation(max_new_tokens=num_steps, length_penalty=0.0)
    constraint = fields.pop("constraint_of", None if catalogue is None else catalogue.constraint)
    return BeamRequest(prompt=np.array(prompt, np.int64), constraint=constraint, **fields)


def drain(engine: BeamEngine) -> dict[int, BeamResult | RecallError]:
    """Step until nothing is left."""
    outcomes: dict[int, BeamResult | RecallError] = {}
    while not engine.is_idle:
        outcomes.update(engine.step())
    return outcomes


def assert_all_free(engine: BeamEngine) -> None:
    """Every slot, page and row is back, and nobody waits."""
    assert engine.slots.num_used == 0
    assert engine.prefixes.num_used == 0
    assert engine.num_rows == engine.num_running == engine.num_waiting == 0
    assert engine._scheduler.reserved_rows == engine._scheduler.reserved_slots == 0


def oracle(decoder: PathDecoder, request: BeamRequest, catalogue: Catalogue) -> Search:
    """O2 on the logits that the decoder injects."""
    prompt = tuple(request.prompt.tolist())
    return recompute_beam(
        lambda prefixes: [decoder.path_logits(prompt + prefix) for prefix in prefixes],
        catalogue.children,
        catalogue.num_levels,
        request.beam_width,
        request.score_space,
        catalogue.level_tokens,
    )


def assert_bitwise_equal(left: BeamResult, right: BeamResult) -> None:
    """Every array and the certificate; not the timings."""
    for name in ("tokens", "lengths", "scores", "log_probs", "ranks", "leaves"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    assert (left.bound, left.proven_count) == (right.bound, right.proven_count)
    assert left.rows_forwarded == right.rows_forwarded
