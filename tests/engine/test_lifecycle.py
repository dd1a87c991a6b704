"""How requests end, and that each end gives everything back: done, cancelled, too late, failed."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from recall_service.engine import engine as engine_module
from recall_service.engine import expansion
from recall_service.engine.engine import BeamEngine, StepReport
from recall_service.engine.request import BeamResult
from recall_service.engine.running import RunningRequest
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import (
    DeadlineExpired,
    EngineFailure,
    InvalidRequest,
    ModelOutputError,
    Overloaded,
    RequestCancelled,
)
from tests.engine.driving import SMALL, ask, assert_all_free, assert_bitwise_equal, drain
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue

VOCAB = 32
CATALOGUE = Catalogue.random(np.random.default_rng(5), (6, 6, 6), 80, VOCAB)
STAGES = {"queue": 0, "after prefill": 1, "between steps": 2}


def make_engine(limits: EngineLimits = SMALL) -> BeamEngine:
    return BeamEngine(PathDecoder(VOCAB, random_path_logits(VOCAB)), limits)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The engine's clock, standing still unless moved."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.parametrize("steps", STAGES.values(), ids=STAGES)
def test_cancelled_anywhere_it_ends_at_once_and_gives_everything_back(steps: int) -> None:
    """P18, P25: its companion never notices."""
    engine, companion = make_engine(), ask(CATALOGUE, [7, 7], beam_width=20, with_ranks=True)
    (alone,) = make_engine().search([companion])
    doomed, other = engine.submit(ask(CATALOGUE)), engine.submit(companion)
    for _ in range(steps):
        assert engine.step() == []
    engine.cancel(doomed)
    if steps:
        assert engine.num_running == 1
    outcomes = drain(engine)
    assert isinstance(outcomes[doomed], RequestCancelled)
    assert_bitwise_equal(outcomes[other], alone)
    assert_all_free(engine)


def test_cancelled_alone_its_slots_are_free_before_the_next_step() -> None:
    engine = make_engine()
    doomed = engine.submit(ask(CATALOGUE))
    engine.step()
    engine.step()
    assert engine.slots.num_used > 0
    engine.cancel(doomed)
    assert_all_free(engine)
    assert [type(completion.outcome) for completion in engine.step()] == [RequestCancelled]


def test_cancelling_what_is_done_or_unknown_changes_nothing() -> None:
    engine = make_engine()
    done = engine.submit(ask(CATALOGUE))
    outcomes = drain(engine)
    engine.cancel(done)
    engine.cancel(999)
    assert isinstance(outcomes[done], BeamResult)
    assert engine.is_idle


@pytest.mark.parametrize(("steps", "stage"), [(0, "queue"), (1, "prefill"), (2, "decode")], ids=list(STAGES))
def test_a_deadline_stops_the_work_wherever_it_passes(clock: SimpleNamespace, steps: int, stage: str) -> None:
    """P18, P25, lesson 17: at the next step, not when the search would have ended."""
    engine = make_engine()
    late, other = engine.submit(ask(CATALOGUE, deadline=101.0)), engine.submit(ask(CATALOGUE, deadline=103.0))
    for _ in range(steps):
        assert engine.step() == []
    clock.now = 102.0
    outcomes = dict(engine.step())
    assert isinstance(outcomes[late], DeadlineExpired)
    assert outcomes[late].stage == stage
    outcomes |= drain(engine)
    assert isinstance(outcomes[other], BeamResult)
    assert_all_free(engine)


@pytest.mark.parametrize("failing_call", [1, 2, 3], ids=["prefill", "first decode", "last decode"])
@pytest.mark.parametrize("part", ["hidden", "logits"])
def test_an_exception_in_the_forward_fails_that_group_and_the_engine_goes_on(failing_call: int, part: str) -> None:
    """P18, P26: what the forward had allocated comes back too."""
    engine, calls = make_engine(), []
    original = getattr(engine.model, part)

    def fail_once(*arguments: object) -> torch.Tensor:
        output = original(*arguments)
        calls.append(part)
        if len(calls) == failing_call:
            raise RuntimeError("CUDA error: an illegal memory access at 0x7f00")
        return output

    setattr(engine.model, part, fail_once)
    ids = [engine.submit(ask(CATALOGUE)) for _ in range(2)]
    outcomes = drain(engine)
    for request_id in ids:
        assert type(outcomes[request_id]) is EngineFailure
        assert isinstance(outcomes[request_id].__cause__, RuntimeError)
        assert "0x7f00" not in str(outcomes[request_id])
    assert_all_free(engine)
    assert len(engine.search([ask(CATALOGUE)])[0].tokens) == 8


def test_a_failing_prefill_leaves_the_rows_of_others_alone() -> None:
    engine = make_engine()
    request = ask(CATALOGUE, beam_width=20)
    (alone,) = make_engine().search([request])
    running = engine.submit(request)
    engine.step()
    original = engine.model.path_logits
    engine.model.path_logits = lambda path: 1 / 0 if path == (9,) else original(path)
    fresh = engine.submit(ask(CATALOGUE, [9]))
    outcomes = drain(engine)
    assert isinstance(outcomes[fresh], EngineFailure)
    assert_bitwise_equal(outcomes[running], alone)
    assert_all_free(engine)


def test_a_request_that_cannot_even_start_gives_back_what_was_reserved_for_it() -> None:
    engine = make_engine()
    engine.pages.places = lambda *_: 1 / 0
    doomed = engine.submit(ask(CATALOGUE))
    assert isinstance(drain(engine)[doomed], EngineFailure)
    assert_all_free(engine)
    del engine.pages.places
    assert len(engine.search([ask(CATALOGUE)])) == 1


def test_a_request_whose_pages_cannot_be_had_fails_alone() -> None:
    engine = make_engine()
    original = engine.prefixes.reserve
    engine.prefixes.reserve = lambda prompt: 1 / 0 if prompt[0] == 9 else original(prompt)
    doomed, other = engine.submit(ask(CATALOGUE, [9])), engine.submit(ask(CATALOGUE))
    outcomes = drain(engine)
    assert isinstance(outcomes[doomed], EngineFailure)
    assert isinstance(outcomes[other], BeamResult)
    assert_all_free(engine)


def test_an_answer_that_cannot_be_put_together_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, original = make_engine(), RunningRequest.result
    monkeypatch.setattr(
        RunningRequest,
        "result",
        lambda running, now: 1 / 0 if running.request.beam_width == 3 else original(running, now),
    )
    doomed, other = engine.submit(ask(CATALOGUE, beam_width=3)), engine.submit(ask(CATALOGUE))
    outcomes = drain(engine)
    assert isinstance(outcomes[doomed], EngineFailure)
    assert isinstance(outcomes[other], BeamResult)
    assert_all_free(engine)


def test_a_lost_device_fails_everything_and_raises_nothing() -> None:
    engine = make_engine()
    ids = [engine.submit(ask(CATALOGUE)) for _ in range(2)]
    engine.step()

    def lost(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    engine.slots.keep_only = lost
    outcomes = dict(engine.abort(EngineFailure("the step failed")))
    assert set(outcomes) == set(ids)
    assert all(isinstance(outcome, EngineFailure) for outcome in outcomes.values())


def test_no_memory_for_one_selection_fails_that_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """P26: selecting over a wide vocabulary can run out of memory as well."""
    engine, request = make_engine(), ask(CATALOGUE, beam_width=20)
    (alone,) = make_engine().search([request])
    original = expansion.select_beams

    def out_of_memory(*arguments: object, width: int, **options: object) -> object:
        if width == 3:
            raise torch.OutOfMemoryError("out of memory")
        return original(*arguments, width=width, **options)

    monkeypatch.setattr(expansion, "select_beams", out_of_memory)
    doomed, other = engine.submit(ask(CATALOGUE, beam_width=3)), engine.submit(request)
    outcomes = drain(engine)
    assert isinstance(outcomes[doomed], Overloaded)
    assert outcomes[doomed].limit == "memory"
    assert_bitwise_equal(outcomes[other], alone)
    assert_all_free(engine)


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=["nan", "+inf"])
@pytest.mark.parametrize("path_len", [1, 2, 3], ids=["prompt", "level 1", "level 2"])
def test_a_model_that_gives_no_number_fails_that_request_alone(value: float, path_len: int) -> None:
    """P13: others in the same step, before and behind it, are untouched."""
    engine = make_engine()
    good = [ask(CATALOGUE, [1], beam_width=9, with_ranks=True), ask(CATALOGUE, [2], beam_width=30, with_ranks=True)]
    expected = make_engine().search(good)
    original = engine.model.path_logits

    def poisoned(path: tuple[int, ...]) -> list[float]:
        row = list(original(path))
        return [value, *row[1:]] if path[0] == 9 and len(path) == path_len else row

    engine.model.path_logits = poisoned
    first, bad, last = (engine.submit(request) for request in (good[0], ask(CATALOGUE, [9]), good[1]))
    outcomes = drain(engine)
    assert type(outcomes[bad]) is ModelOutputError
    assert_bitwise_equal(outcomes[first], expected[0])
    assert_bitwise_equal(outcomes[last], expected[1])
    assert_all_free(engine)


def test_search_raises_the_first_error_and_leaves_nothing_behind() -> None:
    engine = make_engine()
    with pytest.raises(InvalidRequest):
        engine.search([ask(CATALOGUE), ask(CATALOGUE, [])])
    assert engine.is_idle


def test_reports_count_every_forward(clock: SimpleNamespace) -> None:
    reports: list[StepReport] = []
    engine = make_engine()
    engine.observe_step = reports.append
    results = engine.search([ask(CATALOGUE, [1]), ask(CATALOGUE, [2, 3], beam_width=3)])
    assert [(report.phase, report.requests) for report in reports] == [("prefill", 2), ("decode", 2), ("decode", 2)]
    assert sum(report.rows for report in reports) == sum(result.rows_forwarded for result in results)
    assert [result.rows_forwarded for result in results] == [1 + 6 + 8, 1 + 3 + 3]


def test_whoever_counts_the_steps_cannot_fail_them(caplog: pytest.LogCaptureFixture) -> None:
    engine = make_engine()
    (expected,) = engine.search([ask(CATALOGUE)])
    engine.observe_step = lambda report: 1 / 0
    (result,) = engine.search([ask(CATALOGUE)])
    assert_bitwise_equal(result, expected)
    assert "whoever counts the engine's steps raised" in caplog.text


def test_waiting_counts_from_the_arrival_at_the_service(clock: SimpleNamespace) -> None:
    engine = make_engine()
    request_id = engine.submit(ask(CATALOGUE), arrived=clock.now - 0.5)
    assert engine.queue_age_seconds == 0.5
    assert drain(engine)[request_id].queue_seconds == 0.5
    assert engine.queue_age_seconds == 0


def test_the_time_of_an_answer_is_split_into_queue_prefill_and_decode(clock: SimpleNamespace) -> None:
    engine = make_engine()
    original = engine.model.hidden

    def take_two_seconds(*arguments: object) -> torch.Tensor:
        clock.now += 2.0
        return original(*arguments)

    engine.model.hidden = take_two_seconds
    request_id = engine.submit(ask(CATALOGUE))
    clock.now += 1.0
    result = drain(engine)[request_id]
    assert (result.queue_seconds, result.prefill_seconds, result.decode_seconds) == (1.0, 2.0, 4.0)
