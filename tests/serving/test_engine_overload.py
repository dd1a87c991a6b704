"""The engine's thread behind its gate: refusals that wait for no step, places that come back, steps that never end."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.errors import DeadlineExpired, EngineFailure, NotReady, Overloaded
from recall_service.serving.bundles.bundle import Bundle, load_bundle
from recall_service.serving.engine_runner import EngineRunner
from tests.engine.driving import assert_all_free
from tests.rpc.fake_backend import until
from tests.serving.bundles import LIMITS, write_bundle
from tests.serving.forward_gate import ForwardGate

Ask = Callable[..., BeamRequest]

NARROW = replace(LIMITS, max_steps=3, max_rows=16, max_queue_rows=48)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(write_bundle(tmp_path_factory.mktemp("bundles") / "tiny"))


@pytest.fixture
def ask(bundle: Bundle) -> Ask:
    """A request that fills the engine."""
    prompt, _ = bundle.history_prompt(("item-001",))
    return lambda **fields: BeamRequest(prompt=prompt, beam_width=16, constraint=bundle.constraint, **fields)


@pytest.fixture
def forwards(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardGate]:
    forwards = ForwardGate(bundle.model.hidden)
    monkeypatch.setattr(bundle.model, "hidden", forwards)
    yield forwards
    forwards.lift()


@pytest.fixture
async def runner(bundle: Bundle) -> AsyncIterator[EngineRunner]:
    """A runner that runs one request and lets two more of normal priority wait; empty in the end."""
    runner = EngineRunner(BeamEngine(bundle.model, NARROW), "tiny")
    yield runner
    await until(lambda: runner.engine.is_idle and runner._inbox.empty())
    runner.stop()
    assert_all_free(runner.engine)
    gate = runner.gate
    assert (gate.num_inside, gate.rows, gate.tokens, gate._work) == (0, 0, 0, [0, 0, 0])
    assert not runner._awaited


async def test_a_refusal_never_waits_for_a_step(runner: EngineRunner, ask: Ask, forwards: ForwardGate) -> None:
    """Thousands are refused while one step goes on and on."""
    inside = [asyncio.create_task(runner.search(ask())) for _ in range(3)]
    await forwards.arrival(1)
    took = []
    for _ in range(2_000):
        started = time.monotonic()
        with pytest.raises(Overloaded) as refused:
            await runner.search(ask())
        took.append(time.monotonic() - started)
    assert np.percentile(took, 99) < 0.01
    assert refused.value.limit == "queue_full"
    assert forwards.num_arrived == 1
    forwards.lift()
    assert all(isinstance(result, BeamResult) for result in await asyncio.gather(*inside))
    assert isinstance(await runner.search(ask()), BeamResult)


async def test_callers_that_come_and_go_pile_up_nothing_behind_a_step(
    runner: EngineRunner, ask: Ask, forwards: ForwardGate
) -> None:
    """A caller that leaves is gone at once; its place is free once the engine has let go of it."""
    running = asyncio.create_task(runner.search(ask()))
    await forwards.arrival(1)
    for attempt in range(50):
        try:
            await asyncio.wait_for(runner.search(ask()), 0.001)
        except TimeoutError:
            assert attempt < 2
        except Overloaded:
            assert attempt >= 2
    assert runner.gate.num_inside == 3
    forwards.lift()
    await running
    await until(lambda: runner.gate.num_inside == 0)
    assert forwards.num_arrived == 3  # the running one's
    assert runner.engine._next_id == 1  # and of the others none was even handed over


async def test_the_wait_counts_from_the_arrival(runner: EngineRunner, ask: Ask, forwards: ForwardGate) -> None:
    """P25: also that part of it during which the engine, busy with a step, has not seen the request yet."""
    first = asyncio.create_task(runner.search(ask()))
    await forwards.arrival(1)
    second = asyncio.create_task(runner.search(ask()))
    await asyncio.sleep(0.1)
    forwards.lift()
    await first
    assert (await second).queue_seconds > 0.09


@pytest.mark.parametrize("seen", [False, True], ids=["before the engine saw it", "in the engine's queue"])
async def test_deadlines_that_pass_behind_a_long_step_are_learnt_from(
    runner: EngineRunner, ask: Ask, forwards: ForwardGate, seen: bool
) -> None:
    """And what expired while it waited is never begun."""
    running = asyncio.create_task(runner.search(ask()))
    await forwards.arrival(1)
    late = asyncio.create_task(runner.search(ask(deadline=time.monotonic() + 1.0)))
    if seen:  # in time, or the engine would not even queue it
        await asyncio.sleep(0)
        forwards.open()
        await forwards.arrival(2)
        assert runner.engine.num_waiting == 1
    with pytest.raises(asyncio.CancelledError):
        await _cancelled_after(late, 1.05)
    forwards.lift()
    await running
    await until(lambda: runner.gate.num_inside == 0)
    assert forwards.num_arrived == 3
    assert runner.gate._estimate.surprise_seconds(time.monotonic()) > 0


async def test_a_deadline_that_cannot_be_met_is_refused_at_once(
    runner: EngineRunner, ask: Ask, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        await runner.search(ask())
    forwards = ForwardGate(bundle.model.hidden)
    monkeypatch.setattr(bundle.model, "hidden", forwards)
    searches = [asyncio.create_task(runner.search(ask())) for _ in range(2)]
    await forwards.arrival(1)
    assert runner.gate.num_inside == 2
    now = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(runner.gate, "_clock", lambda: now)  # or the deadline might have passed on the way to the gate
        with pytest.raises(Overloaded) as refused:
            await asyncio.wait_for(runner.search(ask(deadline=now + 0.000_5)), 5)
    assert refused.value.limit == "deadline"
    assert forwards.num_arrived == 1  # no step has ended meanwhile
    forwards.lift()
    await asyncio.gather(*searches)


async def test_a_deadline_that_passes_in_the_prefill_ends_it_before_the_next_step(
    runner: EngineRunner, ask: Ask, forwards: ForwardGate
) -> None:
    search = asyncio.create_task(runner.search(ask(deadline=time.monotonic() + 1.0)))
    await forwards.arrival(1)
    await asyncio.sleep(1.05)
    forwards.lift()
    with pytest.raises(DeadlineExpired) as expired:
        await search
    assert expired.value.stage == "prefill"
    assert forwards.num_arrived == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("out of memory"), Overloaded),
        (RuntimeError("CUDA error: an illegal memory access"), EngineFailure),
    ],
    ids=["out of memory", "lost"],
)
async def test_places_come_back_from_a_step_that_fails(
    runner: EngineRunner, ask: Ask, bundle: Bundle, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: type
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(bundle.model, "hidden", fail)
        outcomes = await asyncio.gather(*(runner.search(ask()) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [expected] * 3
    assert runner.failed_steps == 3
    assert isinstance(await runner.search(ask()), BeamResult)
    assert runner.failed_steps == 0


async def test_many_cancelled_at_random_points_leave_nothing_behind(runner: EngineRunner, ask: Ask) -> None:
    """P18, P25, lesson 16: whatever they were waiting for, their places, rows and slots are free afterwards."""

    async def ask_and_leave(number: int) -> object:
        search = asyncio.create_task(runner.search(ask()))
        await asyncio.sleep(number % 17 * 0.000_5)
        search.cancel()
        return (await asyncio.gather(search, return_exceptions=True))[0]

    outcomes: list[object] = []
    for start in range(0, 300, 3):
        outcomes += await asyncio.gather(*(ask_and_leave(start + number) for number in range(3)))
    kinds = {type(outcome) for outcome in outcomes}
    assert kinds <= {BeamResult, asyncio.CancelledError, Overloaded}
    assert asyncio.CancelledError in kinds
    await until(lambda: runner.gate.num_inside == 0)


async def test_time_after_all_have_left_is_no_time_in_which_the_engine_was_busy(
    runner: EngineRunner, ask: Ask, forwards: ForwardGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes without a question would otherwise count as one long step, and shut the queue."""
    told: list[tuple[bool, bool]] = []
    monkeypatch.setattr(runner.gate, "note_ended", lambda work, *, more_waits: told.append((work > 0, more_waits)))
    answered, *gone = [asyncio.create_task(runner.search(ask())) for _ in range(3)]
    for number in range(1, 4):
        await forwards.arrival(number)
        forwards.open()
    await answered  # and two wait
    await forwards.arrival(4)
    for search in gone:
        search.cancel()
    await asyncio.wait(gone)
    forwards.lift()
    await until(lambda: runner.gate.num_inside == 0)
    await until(lambda: told[-1] == (False, False))
    assert (True, True) in told


async def test_stopping_does_not_wait_for_ever_for_a_step(
    bundle: Bundle,
    ask: Ask,
    forwards: ForwardGate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever still waits is told, and the thread ends by itself should the step ever end."""
    runner = EngineRunner(BeamEngine(bundle.model, NARROW), "stuck")
    search = asyncio.create_task(runner.search(ask()))
    await forwards.arrival(1)
    started = time.monotonic()
    runner.stop(0.05)
    assert time.monotonic() - started < 1
    assert "engine stuck is stuck in a step" in caplog.text
    with pytest.raises(NotReady):
        await search
    forwards.lift()
    await until(lambda: "engine-stuck" not in {thread.name for thread in threading.enumerate()})
    assert_all_free(runner.engine)
    assert runner.gate.num_inside == 0


async def _cancelled_after(search: asyncio.Task[BeamResult], seconds: float) -> BeamResult:
    await asyncio.sleep(seconds)
    search.cancel()
    return await search
