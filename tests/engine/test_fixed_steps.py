"""Beam search at fixed shapes, as a GPU runs it: the same answers, and no value that the host would wait for."""

import traceback
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from recall_service.engine.engine import BeamEngine, StepReport
from recall_service.engine.generation import Generation
from recall_service.engine.kernels.fixed import TRITON_KERNELS
from recall_service.engine.kernels.operations import TritonOperations
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamRequest, BeamResult, SearchMode
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import DeadlineExpired, EngineFailure, ModelOutputError, RequestCancelled
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free, assert_bitwise_equal, drain
from tests.engine.fixed import VOCAB, FixedEngine, catalogue
from tests.engine.kernels.host_waits import makes_the_host_wait
from tests.make_checkpoint import make_model, write_checkpoint
from tests.oracles.path_decoder import PathDecoder, integer_path_logits, random_path_logits
from tests.oracles.tries import Catalogue

WIDTHS = [1, 2, 7, 31, 33, 64]
RaggedEngine = partial(BeamEngine, skip_rows=False)


def random_request(rng: np.random.Generator) -> BeamRequest:
    prompt = rng.integers(0, VOCAB, rng.integers(1, 20)).tolist()
    width, with_ranks = int(rng.choice(WIDTHS)), bool(rng.integers(2))
    if rng.integers(4) == 0:
        return ask(None, prompt, num_steps=int(rng.integers(1, 4)), beam_width=width, with_ranks=with_ranks)
    return ask(
        catalogue(int(rng.integers(1, 6)), int(rng.choice([3, 150]))),
        prompt,
        beam_width=width,
        num_results=int(rng.choice([0, 1, width])),
        score_space=SPACES[rng.integers(3)],
        with_ranks=with_ranks,
    )


@settings(derandomize=True, max_examples=40)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 9))
def test_answers_are_those_of_ragged_steps_bit_by_bit(seed: int, count: int) -> None:
    """In any company: widths, catalogues, depths, free searches, late arrivals, cancelled ones."""
    rng = np.random.default_rng(seed)
    decoder = PathDecoder(VOCAB, cache(random_path_logits(VOCAB)))
    requests = [random_request(rng) for _ in range(count)]
    expected = RaggedEngine(decoder, SMALL).search(requests)
    engine, arrivals = FixedEngine(decoder, SMALL), np.sort(rng.integers(0, 4, count))
    doomed = int(rng.integers(0, count)) if count > 3 else None
    ids: list[int] = []
    outcomes: dict[int, Any] = {}
    for step in range(4):
        ids += [engine.submit(requests[index]) for index in range(len(ids), int((arrivals <= step).sum()))]
        if doomed is not None and doomed < len(ids) and rng.integers(2):
            engine.cancel(ids[doomed])
        outcomes.update(engine.step())
    outcomes.update(drain(engine))
    for index, result in enumerate(expected):
        outcome = outcomes[ids[index]]
        if index == doomed and isinstance(outcome, RequestCancelled):
            continue
        assert isinstance(outcome, BeamResult)
        assert_bitwise_equal(outcome, result)
    assert_all_free(engine)


def test_ties_go_to_the_lexicographically_first_paths() -> None:
    """P10: scores that tie often and exactly."""
    decoder = PathDecoder(VOCAB, integer_path_logits(VOCAB, dominant=0, levels=2))
    requests = [ask(catalogue(3), [seed], beam_width=width) for seed in range(3) for width in (5, 33)]
    for fixed, ragged in zip(
        FixedEngine(decoder, SMALL).search(requests), RaggedEngine(decoder, SMALL).search(requests), strict=True
    ):
        assert_bitwise_equal(fixed, ragged)


@pytest.mark.parametrize("num_items", [1, 3, 4])
@pytest.mark.parametrize("width", [1, 3, 8, 64])
def test_fewer_paths_than_beams_are_fewer_rows_and_no_fillers(num_items: int, width: int) -> None:
    """Lessons 1 and 2."""
    decoder = PathDecoder(VOCAB, random_path_logits(VOCAB))
    items = Catalogue.random(np.random.default_rng(0), (3, 3), num_items, VOCAB)
    num_items = len(items.sids)
    (result,) = FixedEngine(decoder, SMALL).search([ask(items, beam_width=width)])
    assert len(result.scores) == min(width, num_items)
    assert np.isfinite(result.scores).all()
    assert len(np.unique(result.leaves)) == len(result.scores)
    assert result.rows_forwarded <= 1 + num_items


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("at_depth", [0, 1])
def test_a_request_whose_logits_are_no_numbers_fails_alone(poison: float, at_depth: int) -> None:
    """P13. Its pages are not found by others either."""
    healthy = random_path_logits(VOCAB)

    def path_logits(path: tuple[int, ...]) -> list[float]:
        is_sick = path[:5] == (9,) * 5 and len(path) == 5 + at_depth
        return [poison] * VOCAB if is_sick else list(healthy(path))

    engine = FixedEngine(PathDecoder(VOCAB, path_logits), SMALL)
    requests = [ask(catalogue(3), prompt) for prompt in ([1, 2], [9] * 5, [3])]
    ids = [engine.submit(request) for request in requests]
    outcomes = drain(engine)
    assert isinstance(outcomes[ids[1]], ModelOutputError)
    for index in (0, 2):
        outcome = outcomes[ids[index]]
        assert isinstance(outcome, BeamResult)
        assert_bitwise_equal(outcome, RaggedEngine(PathDecoder(VOCAB, healthy), SMALL).search([requests[index]])[0])
    assert engine.prefixes.num_cached == 0  # [9] * 5 fills a page of 4, the others none
    assert_all_free(engine)


def test_prompts_that_were_run_before_are_found_again(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    prompt = list(range(20))
    first, second = (engine.search([ask(catalogue(3), prompt)])[0] for _ in range(2))
    assert (first.cached_prompt_tokens, second.cached_prompt_tokens) == (0, 16)
    np.testing.assert_allclose(second.scores, first.scores, atol=1e-5)


def test_a_real_decoder_gives_the_same_items(tiny_decoder: Decoder) -> None:
    """End to end, where matrix products of other shapes move scores a little."""
    rng = np.random.default_rng(4)
    requests = [ask(catalogue(3), rng.integers(0, 64, 9).tolist(), beam_width=width) for width in (4, 64, 64, 33)]
    pairs = zip(
        FixedEngine(tiny_decoder, SMALL).search(requests), BeamEngine(tiny_decoder, SMALL).search(requests), strict=True
    )
    for fixed, ragged in pairs:
        np.testing.assert_array_equal(fixed.leaves, ragged.leaves)
        np.testing.assert_allclose(fixed.scores, ragged.scores, atol=1e-5)
        assert fixed.proven_count == ragged.proven_count


@pytest.fixture(scope="module")
def kernel_decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    """All kernels, by the interpreter; its heads are of a size that they take."""
    decoder = load_decoder(write_checkpoint(make_model("qwen3", head_dim=16), tmp_path_factory.mktemp("heads")))
    decoder._operations = TritonOperations()
    return decoder


def test_every_kernel_together_finds_the_same_items(kernel_decoder: Decoder) -> None:
    rng = np.random.default_rng(5)
    requests = [ask(catalogue(2), rng.integers(0, 64, 6).tolist(), beam_width=7, score_space=space) for space in SPACES]
    requests += [ask(catalogue(2), rng.integers(0, 64, length).tolist(), beam_width=7) for length in (1, 4, 5, 9, 30)]
    requests.append(ask(None, [5, 6], num_steps=2, beam_width=7))
    fixed = BeamEngine(kernel_decoder, SMALL, fixed_kernels=TRITON_KERNELS).search(requests)
    plain = Decoder(kernel_decoder.config, kernel_decoder._weights)
    for found, expected in zip(fixed, BeamEngine(plain, SMALL).search(requests), strict=True):
        np.testing.assert_array_equal(found.tokens, expected.tokens)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
        assert found.bound == pytest.approx(expected.bound, abs=1e-5)


class NothingForTheHost(TorchDispatchMode):
    """Notes every operation that hands a value, or a shape that depends on one, to the host, and who asked for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if makes_the_host_wait(func, args):
            asked = [frame for frame in traceback.extract_stack() if "/recall_service/engine/" in frame.filename]
            self.waits.append(f"{func} in {asked[-1].name}, line {asked[-1].lineno}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("space", SPACES)
def test_no_step_of_fixed_shapes_makes_the_host_wait(kernel_decoder: Decoder, space: Any) -> None:
    """What set_sync_debug_mode asserts on a GPU: on a CPU, that no operation reads a value."""
    engine = BeamEngine(kernel_decoder, SMALL, fixed_kernels=TRITON_KERNELS)
    engine.slots._checks_callers = False
    for prompt in ([1, 2, 3], [4] * 9):
        engine.submit(ask(catalogue(3), prompt, score_space=space, with_ranks=True))
        engine.submit(ask(None, prompt, num_steps=3))
    for _ in range(2):
        with NothingForTheHost() as host:
            assert engine.step() == []
        assert host.waits == []
    assert len(drain(engine)) == 4


def test_what_is_proven_or_may_end_early_takes_ragged_steps(tiny_decoder: Decoder) -> None:
    reports: list[StepReport] = []
    engine = FixedEngine(tiny_decoder, SMALL, observe_step=reports.append)
    proven = ask(catalogue(3), beam_width=6, search_mode=SearchMode.PROVEN)
    stopping = BeamRequest(
        prompt=np.array([1]), beam_width=4, generation=Generation(max_new_tokens=3, stop_tokens=frozenset({5}))
    )
    plain = ask(catalogue(3), beam_width=6)
    ragged = BeamEngine(tiny_decoder, SMALL).search([proven, stopping])
    found = engine.search([proven, stopping, plain])
    for mixed, alone in zip(found, ragged, strict=False):
        np.testing.assert_array_equal(mixed.tokens, alone.tokens)
    assert found[0].proven_count == 6
    assert {report.phase for report in reports} == {"prefill", "decode"}
    assert_all_free(engine)


@pytest.mark.parametrize("steps", [1, 2])
def test_what_is_stopped_midway_gives_everything_back(tiny_decoder: Decoder, steps: int) -> None:
    """P18: cancelled, out of time, aborted."""
    engine = FixedEngine(tiny_decoder, SMALL)
    cancelled = engine.submit(ask(catalogue(4)))
    expired = engine.submit(ask(catalogue(4), beam_width=9))
    for _ in range(steps):
        engine.step()
    engine.cancel(cancelled)
    for running in engine._running:
        object.__setattr__(running.request, "deadline", 0.0)
    aborted = engine.submit(ask(catalogue(4)))
    outcomes = dict(engine.step())
    assert isinstance(outcomes[cancelled], RequestCancelled)
    assert isinstance(outcomes[expired], DeadlineExpired)
    assert isinstance(dict(engine.abort(EngineFailure("over")))[aborted], EngineFailure)
    assert_all_free(engine)


def test_unused_memory_is_never_read(tiny_decoder: Decoder) -> None:
    """P19: pools of NaN."""
    request = ask(catalogue(3, 3), beam_width=8)
    expected = FixedEngine(tiny_decoder, EngineLimits(max_rows=64, max_steps=3, page_len=4)).search([request])[0]
    engine = FixedEngine(tiny_decoder, EngineLimits(max_rows=64, max_steps=3, page_len=4))
    for storage in (engine.pages.storage, engine.slots.storage):
        storage.keys.fill_(torch.nan)
        storage.values.fill_(torch.nan)
    assert_bitwise_equal(engine.search([request])[0], expected)
