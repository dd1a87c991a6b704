"""What a request asks of the model, and what it leaves to the engine to decide."""

from collections.abc import Iterator
from dataclasses import replace

from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.request import BeamRequest, ScoreSpace, SearchMode
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import Violation

_BUDGET_IN_BEAMS = 4  # what proving may cost in all, when the request does not say


def with_row_budget(request: BeamRequest, limits: EngineLimits) -> BeamRequest:
    """The request, its budget decided if that was left to the engine."""
    if request.search_mode is not SearchMode.PROVEN or request.row_budget:
        return request
    rows_of_beam = 1 + request.beam_width * (request.path_len - 1)
    return replace(request, row_budget=min(_BUDGET_IN_BEAMS * rows_of_beam, limits.num_slots + 1))


def model_violations(request: BeamRequest, config: DecoderConfig) -> Iterator[Violation]:
    """What the model cannot do, whatever the engine's limits."""
    prompt, constraint = request.prompt, request.constraint
    if len(prompt) and not (prompt.min() >= 0 and prompt.max() < config.vocab_size):
        yield Violation("prompt", f"holds a token id outside 0 to {config.vocab_size - 1}")
    longest = config.max_positions - request.path_len + 1  # the last token is never forwarded
    if len(prompt) > longest:
        yield Violation("prompt", f"{len(prompt)} tokens; the model reaches {longest}")
    if constraint is not None and constraint.max_token >= config.vocab_size:
        yield Violation("constraint", f"names token {constraint.max_token}; the model has {config.vocab_size}")
    if request.generation is not None:
        yield from request.generation.violations(config.vocab_size)
    if constraint is None and request.score_space is not ScoreSpace.VOCABULARY:
        yield Violation("score_space", f"{request.score_space.value}; a free search knows VOCABULARY alone")
    if constraint is None and request.search_mode is not SearchMode.BEAM:
        yield Violation("search_mode", f"{request.search_mode.value}; a free search knows BEAM alone")
