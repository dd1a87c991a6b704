"""The whole engine on a device against the plain engine on the CPU: the same answers, and no waiting within a step.

CASES holds the checks in the form that `benchmarks.gpu_suite` runs. The decoder is tiny, fp32, and of the same random
weights on both sides. Scores agree to 1e-4; so do items, but where the answer's last places are nearer to each other.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu_suite import Check
from benchmarks.gpu_workload import (
    NEW_TOKENS,
    QWEN3_1700M,
    decoder_of,
    kernels_for,
    level_tokens,
    random_trie,
    random_weights,
)
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.engine import BeamEngine
from recall_service.engine.generation import Generation
from recall_service.engine.models.decoder import Attention, Decoder, DecoderWeights
from recall_service.engine.models.loader import operations_for
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace, SearchMode
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import Overloaded, RecallError

TOLERANCE = 1e-4
TINY = replace(
    QWEN3_1700M, vocab_size=512, hidden_size=64, mlp_size=96, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64
)
_LIMITS = EngineLimits(max_rows=256, max_steps=4, context_pages=64, page_len=16, max_prompt_tokens=256)
_CODEBOOK_SIZE = 64
_STOP_TOKENS = frozenset(range(0, TINY.vocab_size, 3))
_CPU = torch.device("cpu")

Outcomes = dict[int, BeamResult | RecallError]


class Question(NamedTuple):
    """A request, wherever it is asked. space: None for a search of the whole vocabulary. seed: of the prompt."""

    context: int
    width: int
    space: ScoreSpace | None = ScoreSpace.VOCABULARY
    mode: SearchMode = SearchMode.BEAM
    stop_tokens: frozenset[int] = frozenset()
    num_results: int = 0
    num_items: int = 4000
    seed: int = 0

    def on(self, device: torch.device) -> BeamRequest:
        """The request for an engine on that device."""
        prompt = np.random.default_rng((self.seed, self.context)).integers(0, TINY.vocab_size, self.context)
        if self.space is None:
            generation = Generation(max_new_tokens=NEW_TOKENS, stop_tokens=self.stop_tokens)
            return BeamRequest(
                prompt=prompt, beam_width=self.width, generation=generation, num_results=self.num_results
            )
        return BeamRequest(
            prompt=prompt,
            beam_width=self.width,
            constraint=_constraint(self.num_items, device),
            score_space=self.space,
            search_mode=self.mode,
            num_results=self.num_results,
        )


class StarvingDecoder(Decoder):
    """A decoder whose forward asks for more memory than there is, while it starves."""

    is_starving = False

    def hidden(self, tokens: Tensor, positions: Tensor, attention: Attention, wanted: Tensor | None = None) -> Tensor:
        """See Decoder. Raises torch.OutOfMemoryError while starving: on a GPU that of its allocator."""
        if self.is_starving:
            if tokens.is_cuda:
                torch.empty(1 << 50, dtype=torch.uint8, device=tokens.device)
            raise torch.OutOfMemoryError("more than there is")
        return super().hidden(tokens, positions, attention, wanted)


FIXED = [Question(context, width) for context, width in ((1, 1), (16, 8), (33, 31), (70, 100))]
KINDS: dict[str, list[Question]] = {
    **{
        f"constrained, {space.value} scores": [question._replace(space=space) for question in FIXED]
        for space in ScoreSpace
    },
    "fewer results than beams": [question._replace(num_results=5) for question in FIXED[1:]],
    "fewer items than beams": [question._replace(num_items=3) for question in FIXED],
    "free": [question._replace(space=None) for question in FIXED],
    "free with stop tokens": [question._replace(space=None, stop_tokens=_STOP_TOKENS) for question in FIXED],
    "proven, as far as the budget goes": [question._replace(mode=SearchMode.PROVEN) for question in FIXED[1:]],
    "proven to the end": [
        question._replace(mode=SearchMode.PROVEN, space=ScoreSpace.CATALOG) for question in FIXED[1:]
    ],
}


def _each_alone(questions: Sequence[Question], device: torch.device) -> None:
    engine = _engine(device)
    for question in questions:
        _ask(engine, [question])


def _all_kinds_together(device: torch.device) -> None:
    kinds = zip(*([questions[0], questions[-2]] for questions in KINDS.values()), strict=True)
    for questions in kinds:
        _ask(_engine(device), questions)


def _widths_change_on_a_warm_engine(device: torch.device) -> None:
    engine = _engine(device)
    for width in (33, 8, 129, 1, 33, 100):
        _ask(engine, [Question(40, width), Question(17, width, seed=1)])


def _batches_grow_and_shrink(device: torch.device) -> None:
    engine = _engine(device)
    for batch in (3, 1, 5, 2):
        _ask(engine, [Question(10 + 20 * member, 16, seed=batch) for member in range(batch)])


def _requests_join_between_steps(device: torch.device) -> None:
    engine = _engine(device)
    questions = [Question(20 + member, 16, seed=member) for member in range(3)]
    ids: list[int] = []
    outcomes: Outcomes = {}
    for question in questions:
        ids.append(engine.submit(question.on(device)))
        outcomes.update(engine.step())
    outcomes |= _drain(engine)
    for request_id, question in zip(ids, questions, strict=True):
        _assert_same(_result(outcomes[request_id]), _expected(question))
    _assert_all_free(engine)


def _what_unused_memory_holds_does_not_matter(device: torch.device) -> None:
    engine = _engine(device)
    for storage in (engine.pages.storage, engine.slots.storage):
        storage.keys.fill_(torch.nan)
        storage.values.fill_(torch.nan)
    for questions in KINDS.values():
        _ask(engine, [questions[-2]])


def _prompts_begin_alike(device: torch.device) -> None:
    engine = _engine(device)
    long = Question(70, 16).on(device)
    for length in (70, 70, 49, 48, 17):
        (found,) = engine.search([replace(long, prompt=long.prompt[:length])])
        on_cpu = replace(Question(70, 16).on(_CPU), prompt=long.prompt[:length])
        (expected,) = _plain_engine().search([on_cpu])
        _assert_same(found, expected)
    assert found.cached_prompt_tokens == _LIMITS.page_len, "the first page was not kept"


def _captured_steps_answer_as_eager_ones(device: torch.device) -> None:
    for batch in (1, 3):
        requests = [Question(33 + member, 31, seed=member).on(device) for member in range(batch)]
        captured, eager = (_engine(device, captured=captured) for captured in (True, False))
        for _ in range(2):  # what was captured, then what is replayed
            for one, other in zip(captured.search(requests), eager.search(requests), strict=True):
                _assert_same(one, other)


def _no_step_waits_for_the_device(device: torch.device) -> None:
    engine = _engine(device)
    questions = [
        Question(33, 31),
        Question(70, 31, seed=1),
        Question(16, 8, ScoreSpace.CATALOG),
        Question(40, 8, ScoreSpace.CODEBOOK),
        Question(20, 8, None),
    ]
    requests = [question.on(device) for question in questions]
    engine.search([replace(request, prompt=request.prompt[::-1].copy()) for request in requests])  # made and captured
    ids = [engine.submit(request) for request in requests]
    outcomes: Outcomes = {}
    with _waiting_is_an_error(device):
        for _ in range(NEW_TOKENS):
            outcomes.update(engine.step())
    outcomes |= _drain(engine)
    for request_id, question in zip(ids, questions, strict=True):
        _assert_same(_result(outcomes[request_id]), _expected(question))
    _assert_all_free(engine)


def _out_of_memory_fails_its_step_alone(device: torch.device) -> None:
    weights = _weights(device)
    model = StarvingDecoder(TINY, weights, operations=operations_for(device))
    engine = BeamEngine(model, _LIMITS, fixed_kernels=kernels_for(device))
    for num_good_steps in (0, 1):  # the prompts' step starves, then that of the beams
        _ask(engine, [Question(33, 16)])
        ids = [engine.submit(Question(40 + member, 24, seed=member).on(device)) for member in range(2)]
        for _ in range(num_good_steps):
            assert not engine.step()
        model.is_starving = True
        outcomes = _drain(engine)
        model.is_starving = False
        for request_id in ids:
            assert isinstance(outcomes[request_id], Overloaded), f"ended with {outcomes[request_id]!r}, not Overloaded"
        _assert_all_free(engine)
    _ask(engine, [Question(33, 16), Question(40, 24)])


CASES: dict[str, Check] = {
    **{f"{kind}: each alone": functools.partial(_each_alone, questions) for kind, questions in KINDS.items()},
    "all kinds together": _all_kinds_together,
    "widths change on a warm engine": _widths_change_on_a_warm_engine,
    "batches grow and shrink": _batches_grow_and_shrink,
    "requests join between steps": _requests_join_between_steps,
    "unused memory full of NaN": _what_unused_memory_holds_does_not_matter,
    "prompts that begin alike": _prompts_begin_alike,
    "captured steps against eager ones": _captured_steps_answer_as_eager_ones,
    "no step waits for the device": _no_step_waits_for_the_device,
    "out of memory fails its step alone": _out_of_memory_fails_its_step_alone,
}


def _ask(engine: BeamEngine, questions: Sequence[Question]) -> None:
    """Ask all together; every answer must be that of the CPU to the question alone, and leave nothing behind."""
    results = engine.search([question.on(engine.model.device) for question in questions])
    for question, found in zip(questions, results, strict=True):
        _assert_same(found, _expected(question))
    _assert_all_free(engine)


def _drain(engine: BeamEngine) -> Outcomes:
    """Step until nothing is left."""
    outcomes: Outcomes = {}
    while not engine.is_idle:
        outcomes.update(engine.step())
    return outcomes


def _assert_same(found: BeamResult, expected: BeamResult) -> None:
    assert len(found.scores) == len(expected.scores), f"{len(found.scores)} paths for {len(expected.scores)}"
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(found.bound, expected.bound, rtol=0, atol=TOLERANCE)
    ours, theirs = (
        dict(zip(map(tuple, result.tokens.tolist()), result.scores.tolist(), strict=True))
        for result in (found, expected)
    )
    worst = min(theirs.values(), default=0.0)
    for path in ours.keys() ^ theirs.keys():
        score = ours.get(path, theirs.get(path, 0.0))
        assert score - worst < TOLERANCE, (
            f"{path} scores {score} and is in one answer alone; the last place has {worst}"
        )
    for path in ours.keys() & theirs.keys():
        assert abs(ours[path] - theirs[path]) < TOLERANCE, f"{path} scores {ours[path]}, not {theirs[path]}"


def _assert_all_free(engine: BeamEngine) -> None:
    left = (engine.slots.num_used, engine.prefixes.num_used, engine.num_rows, engine.num_running, engine.num_waiting)
    assert left == (0, 0, 0, 0, 0), f"{left} slots, pages, rows, running and waiting requests are left"


def _result(outcome: BeamResult | RecallError) -> BeamResult:
    if isinstance(outcome, RecallError):
        raise outcome
    return outcome


@contextmanager
def _waiting_is_an_error(device: torch.device) -> Iterator[None]:
    """Whatever makes the host wait for a GPU raises."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _engine(device: torch.device, *, captured: bool = True) -> BeamEngine:
    decoder = decoder_of(TINY, _weights(device))
    return BeamEngine(decoder, _LIMITS, fixed_kernels=kernels_for(device), captured=captured)


@functools.cache
def _plain_engine() -> BeamEngine:
    """On the CPU, its searches of whatever shapes they come to."""
    return BeamEngine(decoder_of(TINY, _weights(_CPU)), _LIMITS)


@functools.cache
def _expected(question: Question) -> BeamResult:
    (result,) = _plain_engine().search([question.on(_CPU)])
    return result


@functools.cache
def _weights(device: torch.device) -> DecoderWeights:
    return random_weights(TINY, torch.float32, device, drawn_on=_CPU)


@functools.cache
def _constraint(num_items: int, device: torch.device) -> TrieConstraint:
    return TrieConstraint(random_trie(_CODEBOOK_SIZE, num_items), level_tokens(_CODEBOOK_SIZE, TINY.vocab_size), device)
