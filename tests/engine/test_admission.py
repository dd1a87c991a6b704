"""What is let in, what waits, what is refused: nothing that runs ever finds the pools empty."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamResult, Priority, ScoreSpace
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import DeadlineExpired, EngineFailure, InvalidRequest, RequestCancelled
from tests.engine.driving import ask, assert_all_free, drain
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue

VOCAB = 24
CATALOGUE = Catalogue.random(np.random.default_rng(2), (5, 5, 5), 90, VOCAB)
DEEP = Catalogue({(0, 0, 0, 0)}, [np.arange(2)] * 4)
TIGHT = EngineLimits(max_rows=8, max_steps=3, context_pages=4, page_len=4, max_prompt_tokens=16)


def make_engine(limits: EngineLimits = TIGHT, max_positions: int = 4096) -> BeamEngine:
    return BeamEngine(PathDecoder(VOCAB, random_path_logits(VOCAB), max_positions), limits)


@pytest.mark.parametrize("prompt_len", [1, 3, 4, 5, 15, 16])
def test_prompts_of_every_length_around_a_page_are_served(prompt_len: int) -> None:
    """P15, P20: the longest prompt at the widest beam fits into an empty engine, and leaves it empty."""
    engine, prompt = make_engine(), list(range(prompt_len))
    (result,) = engine.search([ask(CATALOGUE, prompt, beam_width=8)])
    assert len(result.tokens) == 8
    assert_all_free(engine)
    (roomy,) = make_engine(EngineLimits(page_len=32)).search([ask(CATALOGUE, prompt, beam_width=8)])
    assert roomy.tokens.tolist() == result.tokens.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"prompt": []}, "prompt: 0 tokens; give 1 to 16", id="empty"),
        pytest.param({"prompt": [1] * 17}, "prompt: 17 tokens; give 1 to 16", id="too long"),
        pytest.param({"prompt": [0, VOCAB]}, "prompt: holds a token id outside 0 to 23", id="no such token"),
        pytest.param({"prompt": [-1]}, "prompt: holds a token id outside 0 to 23", id="negative token"),
        pytest.param({"beam_width": 0}, "beam_width: 0; give 1 to 8", id="no beam"),
        pytest.param({"beam_width": 9}, "beam_width: 9; give 1 to 8", id="too wide"),
        pytest.param(
            {"catalogue": None, "num_steps": 0},
            "generation.max_new_tokens: paths of 0 tokens; give 1 to 3",
            id="no steps",
        ),
        pytest.param(
            {"catalogue": None, "num_steps": 4},
            "generation.max_new_tokens: paths of 4 tokens; give 1 to 3",
            id="too many steps",
        ),
        pytest.param({"catalogue": DEEP}, "constraint: paths of 4 tokens; give 1 to 3", id="too many levels"),
        pytest.param({"num_steps": 2}, "generation: both of it and constraint given; give one", id="two searches"),
    ],
)
def test_what_could_never_run_is_refused_when_it_is_submitted(change: dict, message: str) -> None:
    """P15, P20."""
    engine = make_engine()
    with pytest.raises(InvalidRequest) as refused:
        engine.submit(ask(**({"catalogue": CATALOGUE} | change)))
    assert str(refused.value) == message
    assert_all_free(engine)


def test_all_limits_are_named_at_once() -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_engine().submit(ask(None, [], beam_width=0))
    assert [violation.field for violation in refused.value.violations] == ["prompt", "beam_width", "generation"]


def test_what_the_model_and_the_limits_refuse_is_named_together() -> None:
    with pytest.raises(InvalidRequest) as refused:
        make_engine().submit(ask(Catalogue({(0,)}, [np.array([VOCAB])]), [VOCAB], beam_width=9))
    assert [violation.field for violation in refused.value.violations] == ["beam_width", "prompt", "constraint"]


@pytest.mark.parametrize("space", [ScoreSpace.CODEBOOK, ScoreSpace.CATALOG])
def test_a_free_search_has_no_codebook_and_no_catalogue_to_score_over(space: ScoreSpace) -> None:
    with pytest.raises(InvalidRequest, match=f"score_space: {space.value}; a free search knows VOCABULARY alone"):
        make_engine().submit(ask(None, [1], num_steps=2, score_space=space))


def test_a_catalogue_of_tokens_that_the_model_lacks_is_refused() -> None:
    catalogue = Catalogue({(0,)}, [np.array([VOCAB])])
    with pytest.raises(InvalidRequest, match="constraint: names token 24; the model has 24"):
        make_engine().submit(ask(catalogue))


def test_the_prompt_may_reach_just_as_far_as_the_models_positions() -> None:
    """P15: the last token of a path is never forwarded, so 3 levels take 2 positions."""
    engine = make_engine(max_positions=10)
    assert len(engine.search([ask(CATALOGUE, [1] * 8)])[0].tokens) == 8
    with pytest.raises(InvalidRequest, match="prompt: 9 tokens; the model reaches 8"):
        engine.submit(ask(CATALOGUE, [1] * 9))


@pytest.mark.parametrize(("width", "prompt_len", "at_once"), [(8, 1, 1), (4, 1, 2), (2, 5, 2), (1, 16, 1), (1, 4, 4)])
def test_as_many_run_at_once_as_rows_and_pages_reach(width: int, prompt_len: int, at_once: int) -> None:
    """P20, lesson 13: rows count, not requests."""
    engine = make_engine()
    ids = [engine.submit(ask(CATALOGUE, [3] * prompt_len, beam_width=width)) for _ in range(5)]
    engine.step()
    assert (engine.num_running, engine.num_waiting) == (at_once, 5 - at_once)
    outcomes = drain(engine)
    assert all(isinstance(outcomes[request_id], BeamResult) for request_id in ids)


LONG = EngineLimits(max_rows=64, max_steps=64, max_slots=600, context_pages=16, page_len=4, max_prompt_tokens=16)


def test_long_paths_take_their_share_of_slots_and_short_ones_theirs() -> None:
    """P20: 8 beams of 64 tokens hold 504 of 600 slots, so that 16 of 3 levels run beside them, and no second 8 do."""
    engine = make_engine(LONG)
    ids = [
        engine.submit(ask(None, num_steps=64, beam_width=8)),
        engine.submit(ask(CATALOGUE, beam_width=16)),
        engine.submit(ask(None, num_steps=64, beam_width=8)),
    ]
    engine.step()
    assert (engine.num_running, engine._scheduler.reserved_slots) == (2, 504 + 32)
    outcomes = drain(engine)
    assert [outcomes[request_id].tokens.shape for request_id in ids] == [(8, 64), (16, 3), (8, 64)]
    assert_all_free(engine)


def test_paths_that_the_slots_could_never_hold_are_refused() -> None:
    engine = make_engine(LONG)
    assert engine.slots.num_slots == 600
    with pytest.raises(InvalidRequest) as refused:
        engine.submit(ask(None, num_steps=64, beam_width=10))
    message = "beam_width: 10 beams of 64 tokens take 630 slots; the engine has 600: ask for less"
    assert str(refused.value) == message
    assert engine.submit(ask(None, num_steps=61, beam_width=10))


def test_nobody_overtakes_a_wide_request_that_waits() -> None:
    engine = make_engine()
    first, wide, narrow = (engine.submit(ask(CATALOGUE, beam_width=width)) for width in (4, 8, 1))
    order = []
    while not engine.is_idle:
        order += [completion.request_id for completion in engine.step()]
    assert order == [first, wide, narrow]


def test_of_those_that_wait_higher_priority_goes_first() -> None:
    engine = make_engine()
    first, second, normal, high = (
        engine.submit(ask(CATALOGUE, beam_width=8, priority=priority))
        for priority in (Priority.LOW, Priority.LOW, Priority.NORMAL, Priority.HIGH)
    )
    order = list(drain(engine))
    assert order == [high, normal, first, second]


def test_one_that_has_waited_goes_before_a_new_one_of_higher_priority() -> None:
    engine = make_engine(replace(TIGHT, priority_ageing_seconds=0.001))
    first = engine.submit(ask(CATALOGUE, priority=Priority.LOW), arrived=10.0)
    second = engine.submit(ask(CATALOGUE, priority=Priority.HIGH), arrived=10.1)
    assert list(drain(engine)) == [first, second]


def test_what_runs_is_counted_by_priority_and_given_back() -> None:
    engine = make_engine()
    engine.submit(ask(CATALOGUE, [1, 2, 3], beam_width=2, priority=Priority.HIGH))
    engine.submit(ask(CATALOGUE, [4], beam_width=3, priority=Priority.LOW))
    engine.step()
    assert (engine.reserved_rows, engine.reserved_tokens, list(engine.reserved_work)) == (
        5,
        4,
        [3 + 2 * 2, 0, 1 + 3 * 2],
    )
    drain(engine)
    assert (engine.reserved_rows, engine.reserved_tokens, list(engine.reserved_work)) == (0, 0, [0, 0, 0])


@settings(derandomize=True, max_examples=25)
@given(seed=st.integers(0, 10**6))
def test_in_the_tightest_pools_nothing_fails_for_want_of_room(seed: int) -> None:
    """P18, P20: requests of every size, cancelled, late and failing, for as long as it takes; then all is free."""
    rng, engine = np.random.default_rng(seed), make_engine()
    path_logits, bad = engine.model.path_logits, VOCAB - 1
    engine.model.path_logits = lambda path: [np.nan] * VOCAB if bad in path[:1] else path_logits(path)
    ids: list[int] = []
    outcomes = {}
    while len(outcomes) < 40:
        if len(ids) < 40:
            prompt = rng.integers(0, bad + 1, rng.integers(1, 17)).tolist()
            deadline = 0.0 if rng.random() < 0.1 else None
            width = int(rng.integers(1, 9))
            ids.append(engine.submit(ask(CATALOGUE, prompt, beam_width=width, deadline=deadline)))
        if rng.random() < 0.2:
            engine.cancel(int(rng.choice(ids)))
        outcomes.update(engine.step())
        used_rows = sum(running.request.beam_width for running in engine._running)
        assert engine.num_rows <= used_rows == engine._scheduler.reserved_rows <= 8
    for outcome in outcomes.values():
        assert isinstance(outcome, BeamResult | RequestCancelled | DeadlineExpired | EngineFailure)
        assert not isinstance(getattr(outcome, "__cause__", None), AssertionError)
    assert_all_free(engine)


def test_one_level_needs_no_beam_slots() -> None:
    limits = EngineLimits(max_rows=4, max_steps=1, context_pages=1, page_len=4, max_prompt_tokens=4)
    engine = make_engine(limits)
    catalogue = Catalogue({(code,) for code in range(9)}, [np.arange(9)])
    assert len(engine.search([ask(catalogue, beam_width=4)])[0].tokens) == 4
    assert engine.slots.num_slots == 0
