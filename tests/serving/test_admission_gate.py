"""The gate of an engine: what it takes in, what it refuses and when, and what it gives back."""

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from recall_service.engine.request import BeamRequest, Priority
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import DeadlineExpired, EngineFailure, NotReady, Overloaded, RequestCancelled
from recall_service.serving.admission_gate import AdmissionGate, Place
from tests.serving.simulated_engine import request_of, result_of

LIMITS = EngineLimits(
    max_rows=100, max_queue_rows=200, context_pages=10, page_len=10, max_queue_tokens=1_000, max_prompt_tokens=100
)


class Gated:
    """A gate on a clock that a test moves, before an engine that runs what a test says."""

    def __init__(self, limits: EngineLimits = LIMITS) -> None:
        self.clock = SimpleNamespace(now=100.0)
        self.running: Sequence[int] = (0, 0, 0)
        self.gate = AdmissionGate(limits, lambda: self.running, clock=lambda: self.clock.now)

    def fill(self, priority: Priority, **size: int) -> list[Place]:
        """Enter requests alike until one is refused, for the queue is full."""
        request, places = request_of(priority=priority, **size), []
        with suppress(Overloaded):
            while True:
                places.append(self.gate.enter(request))
        assert self.refused(request).limit == "queue_full"
        return places

    def refused(self, request: BeamRequest) -> Overloaded:
        with pytest.raises(Overloaded) as caught:
            self.gate.enter(request)
        return caught.value

    def measure(self, *, service_seconds: float, seconds_per_step: float = 0.0, work: int = 0) -> None:
        """Let searches have taken so long, and so much work have ended a step while more waited."""
        for _ in range(30):
            self.gate.leave(self.gate.enter(request_of(10)), result_of(service_seconds=service_seconds))
            if work:
                self.clock.now += seconds_per_step
                self.gate.note_ended(work, more_waits=True)


@pytest.mark.parametrize(
    ("priority", "num_taken"), [(Priority.LOW, 20), (Priority.NORMAL, 28), (Priority.HIGH, 30)], ids=lambda v: str(v)
)
def test_rows_bound_what_is_inside(priority: Priority, num_taken: int) -> None:
    """100 run; of the 200 that may wait, a priority fills its share. Lesson 13: rows count, not calls."""
    gated = Gated()
    assert len(gated.fill(priority, width=10)) == num_taken
    assert (gated.gate.rows, gated.gate.num_inside) == (10 * num_taken, num_taken)


@pytest.mark.parametrize(
    ("priority", "num_taken"), [(Priority.LOW, 6), (Priority.NORMAL, 10), (Priority.HIGH, 11)], ids=lambda v: str(v)
)
def test_prompt_tokens_bound_what_is_inside(priority: Priority, num_taken: int) -> None:
    """100 run and 1,000 wait; a prompt of 95 takes up ten pages of 10."""
    gated = Gated()
    assert len(gated.fill(priority, prompt_len=95)) == num_taken
    assert gated.gate.tokens == 100 * num_taken


def test_higher_priority_still_gets_in_where_lower_is_refused() -> None:
    gated = Gated()
    assert [len(gated.fill(priority, width=10)) for priority in reversed(Priority)] == [20, 8, 2]


def test_narrow_requests_fit_where_a_wide_one_does_not() -> None:
    gated = Gated()
    gated.fill(Priority.HIGH, width=70)
    assert gated.gate.rows == 280
    gated.gate.enter(request_of(20, priority=Priority.HIGH))


@pytest.mark.parametrize(
    "outcome",
    [result_of(), RequestCancelled("gone"), EngineFailure("failed"), DeadlineExpired("decode")],
    ids=["answer", "cancelled", "failed", "expired"],
)
def test_a_place_is_free_again_once_it_is_left_however_it_ended(outcome: Any) -> None:
    gated = Gated()
    places = gated.fill(Priority.NORMAL, width=30, prompt_len=3)
    gated.refused(request_of(30))
    for place in places:
        gated.gate.leave(place, outcome)
    assert (gated.gate.num_inside, gated.gate.rows, gated.gate.tokens, gated.gate._work) == (0, 0, 0, [0, 0, 0])
    assert len(gated.fill(Priority.NORMAL, width=30, prompt_len=3)) == len(places)


def test_one_that_finds_the_engine_empty_is_let_in_whatever_is_thought_of_it() -> None:
    """Neither its size nor an estimate that has gone wrong shuts the gate for good."""
    gated = Gated()
    gated.measure(service_seconds=1_000.0)
    place = gated.gate.enter(request_of(10_000, deadline=gated.clock.now + 0.1))
    assert gated.refused(request_of(1, deadline=gated.clock.now + 0.1)).limit == "queue_full"
    gated.gate.leave(place, result_of())


def test_without_measurements_nobody_is_refused_for_a_deadline() -> None:
    gated = Gated()
    for _ in range(25):
        gated.gate.enter(request_of(10, deadline=gated.clock.now + 0.000_1))
    assert gated.gate.num_inside == 25


def test_with_room_at_once_only_the_hopeless_are_refused() -> None:
    gated = Gated()
    gated.measure(service_seconds=0.1)
    gated.gate.enter(request_of(10))
    gated.gate.enter(request_of(10, deadline=gated.clock.now + 0.11))
    assert gated.refused(request_of(10, deadline=gated.clock.now + 0.09)).limit == "deadline"
    gated.gate.enter(request_of(10))  # without a deadline it has time


def test_one_that_has_to_wait_needs_the_time_for_all_that_goes_before_it() -> None:
    """1,000 of work a second; 110 of it wait and 11 of its own: 0.121 s until it runs, 0.1 s to run."""
    gated = Gated()
    gated.measure(service_seconds=0.1, seconds_per_step=0.1, work=100)
    for _ in range(20):
        gated.gate.enter(request_of(10))
    gated.running = (0, 110, 0)
    refusal = gated.refused(request_of(10, deadline=gated.clock.now + 0.21))
    assert refusal.limit == "deadline"
    assert "it would take about 0.221 s, and the deadline is in 0.210 s" in str(refusal)
    place = gated.gate.enter(request_of(10, deadline=gated.clock.now + 0.23))
    assert place.foreseen_wait == pytest.approx(0.121)


def test_only_work_of_the_same_or_higher_priority_goes_before() -> None:
    gated = Gated()
    gated.measure(service_seconds=0.1, seconds_per_step=0.1, work=100)
    for _ in range(15):
        gated.gate.enter(request_of(10))
    gated.running = (0, 110, 0)
    waits = [gated.gate.enter(request_of(10, priority=priority)).foreseen_wait for priority in Priority]
    assert waits == pytest.approx([0.011, 0.011 + 0.055 + 0.011, 0.011 + 0.066 + 0.011])
    gated.gate.enter(request_of(10, deadline=gated.clock.now + 0.125, priority=Priority.HIGH))
    gated.refused(request_of(10, deadline=gated.clock.now + 0.125))


def test_a_deadline_that_has_passed_is_no_overload() -> None:
    gated = Gated()
    with pytest.raises(DeadlineExpired) as caught:
        gated.gate.enter(request_of(deadline=gated.clock.now))
    assert caught.value.stage == "queue"


def test_a_gate_that_is_shut_sends_elsewhere() -> None:
    gated = Gated()
    gated.gate.refusal = "the engine is stuck; ask another replica"
    with pytest.raises(NotReady, match="ask another replica"):
        gated.gate.enter(request_of())
    gated.gate.refusal = None
    assert gated.gate.enter(request_of()).rows == 1


def test_those_refused_together_are_told_to_come_back_apart_and_once_there_is_room() -> None:
    gated = Gated()
    unmeasured = Gated()
    unmeasured.fill(Priority.NORMAL, width=10)
    assert 0.8 <= unmeasured.refused(request_of(10)).retry_after_seconds <= 1.2
    gated.measure(service_seconds=0.1, seconds_per_step=0.1, work=100)
    gated.fill(Priority.NORMAL, width=10)
    gated.running = (0, 110, 0)
    advice = [gated.refused(request_of(10)).retry_after_seconds for _ in range(50)]
    expected = (28 * 11 - 110 + 11) / 1_000
    assert all(0.8 * expected <= seconds <= 1.2 * expected for seconds in advice)
    assert max(advice) - min(advice) > 0.1 * expected


@pytest.mark.parametrize(("seconds", "bound"), [(0.000_1, 0.05), (1_000.0, 5.0)], ids=["short", "long"])
def test_advice_is_neither_at_once_nor_never(seconds: float, bound: float) -> None:
    gated = Gated()
    gated.measure(service_seconds=seconds)
    gated.fill(Priority.NORMAL, width=10)
    assert 0.8 * bound <= gated.refused(request_of(10)).retry_after_seconds <= 1.2 * bound


def test_time_in_which_nobody_waited_says_nothing_of_how_fast_the_queue_moves() -> None:
    """All who waited have left, ten minutes go by, and there is a burst."""
    gated = Gated()
    gated.gate.note_ended(100, more_waits=True)
    gated.gate.note_ended(0, more_waits=False)
    for pause in (600.0, 0.1, 0.1):
        gated.clock.now += pause
        gated.gate.note_ended(100, more_waits=True)
    gated.running = (0, 110, 0)
    for _ in range(10):
        gated.gate.enter(request_of(10))
    place = gated.gate.enter(request_of(10, deadline=gated.clock.now + 1.0))
    assert place.foreseen_wait == pytest.approx(0.011)


def test_an_estimate_gone_wrong_does_not_keep_the_queue_shut() -> None:
    """A machine that stood still for a minute: those who would wait are refused at first, and soon let in again."""
    gated = Gated()
    gated.measure(service_seconds=0.1, seconds_per_step=0.1, work=100)
    gated.clock.now += 60.0
    gated.gate.note_ended(100, more_waits=True)
    gated.running = (0, 110, 0)
    for _ in range(10):
        gated.gate.enter(request_of(10))
    assert gated.refused(request_of(10, deadline=gated.clock.now + 1.0)).limit == "deadline"
    gated.clock.now += 6.0
    assert gated.gate.enter(request_of(10, deadline=gated.clock.now + 1.0)).foreseen_wait is not None


@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_searches_that_run_out_of_time_while_they_run_teach_how_long_one_takes_at_least(stage: str) -> None:
    gated = Gated()
    for _ in range(3):
        place = gated.gate.enter(request_of(10, deadline=gated.clock.now + 0.2))
        gated.clock.now += 0.21
        gated.gate.leave(place, DeadlineExpired(stage))
    gated.gate.enter(request_of(10))
    assert gated.refused(request_of(10, deadline=gated.clock.now + 0.2)).limit == "deadline"
    gated.gate.enter(request_of(10, deadline=gated.clock.now + 0.3))


def test_what_the_service_asks_for_itself_is_taken_in_past_a_full_queue() -> None:
    gated = Gated()
    places = gated.fill(Priority.HIGH, width=10)
    place = gated.gate.admit(request_of(width=100))
    assert (gated.gate.rows, gated.gate.num_inside) == (10 * len(places) + 100, len(places) + 1)
    gated.gate.leave(place, result_of())
    assert gated.gate.rows == 10 * len(places)
    gated.gate.refusal = "the engine is stuck"
    with pytest.raises(NotReady, match="the engine is stuck"):
        gated.gate.admit(request_of(width=10))
