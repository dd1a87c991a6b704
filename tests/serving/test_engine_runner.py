"""The engine's thread: many searches at once, and what becomes of the rest when one goes wrong."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.errors import EngineFailure, InvalidRequest, ModelOutputError, NotReady
from recall_service.serving.bundles.bundle import Bundle, load_bundle
from recall_service.serving.engine_runner import EngineRunner
from tests.engine.driving import assert_all_free
from tests.rpc.fake_backend import until
from tests.serving.bundles import LIMITS, write_bundle
from tests.serving.forward_gate import ForwardGate

Ask = Callable[..., BeamRequest]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return load_bundle(write_bundle(tmp_path_factory.mktemp("bundles") / "tiny"))


@pytest.fixture
def ask(bundle: Bundle) -> Ask:
    """A request after some items, of any width."""

    def make(*numbers: int, beam_width: int = 16) -> BeamRequest:
        prompt, _ = bundle.history_prompt(tuple(f"item-{number:03d}" for number in numbers))
        return BeamRequest(prompt=prompt, beam_width=beam_width, constraint=bundle.constraint)

    return make


@pytest.fixture
async def runner(bundle: Bundle) -> AsyncIterator[EngineRunner]:
    """A runner with room for two requests of 64 rows; idle and empty in the end, whatever the test did."""
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    runner = EngineRunner(BeamEngine(bundle.model, replace(LIMITS, max_steps=3)), "tiny")
    yield runner
    await until(lambda: runner.engine.is_idle)
    await asyncio.sleep(0)  # answers that nobody awaits any more are still delivered
    assert faults == []
    assert_all_free(runner.engine)
    assert not runner._tickets
    runner.stop()


@pytest.fixture
def gate(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardGate]:
    gate = ForwardGate(bundle.model.hidden)
    monkeypatch.setattr(bundle.model, "hidden", gate)
    yield gate
    gate.lift()


def alone(bundle: Bundle, request: BeamRequest) -> BeamResult:
    """What a new engine answers to one request."""
    return BeamEngine(bundle.model, replace(LIMITS, max_steps=3)).search([request])[0]


def assert_same(result: BeamResult, expected: BeamResult) -> None:
    """Beams are the same; a batch may round scores otherwise."""
    np.testing.assert_array_equal(result.leaves, expected.leaves)
    np.testing.assert_allclose(result.scores, expected.scores, rtol=0, atol=1e-4)


def raising_once(error: Exception, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A stand-in that raises on its first call."""
    errors = [error]

    def call(*arguments: Any, **named: Any) -> Any:
        if errors:
            raise errors.pop()
        return otherwise(*arguments, **named)

    return call


async def test_searches_at_once_equal_searches_alone(bundle: Bundle, runner: EngineRunner, ask: Ask) -> None:
    requests = [ask(number, 2 * number, beam_width=1 + 3 * number) for number in range(20)]
    results = await asyncio.gather(*(runner.search(request) for request in requests))
    for request, result in zip(requests, results, strict=True):
        assert_same(result, alone(bundle, request))


async def test_a_request_the_engine_refuses_fails_alone(bundle: Bundle, runner: EngineRunner, ask: Ask) -> None:
    good, bad = await asyncio.gather(
        runner.search(ask(1)), runner.search(ask(1, beam_width=1000)), return_exceptions=True
    )
    assert isinstance(bad, InvalidRequest)
    assert isinstance(good, BeamResult)
    assert_same(good, alone(bundle, ask(1)))


@pytest.mark.parametrize(("forward", "stage"), [(1, "prefill"), (2, "decode"), (3, "decode")])
async def test_cancelling_a_running_search_hurts_nobody(
    bundle: Bundle, runner: EngineRunner, ask: Ask, gate: ForwardGate, forward: int, stage: str
) -> None:
    stages: list[str] = []
    gone = asyncio.create_task(runner.search(ask(1), stages.append))
    kept = asyncio.create_task(runner.search(ask(2)))
    for number in range(1, forward):
        await gate.arrival(number)
        gate.open()
    await gate.arrival(forward)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(gone, 0.5)  # while the step still runs
    gate.lift()
    result = await kept
    assert stages == [stage]
    assert_same(result, alone(bundle, ask(2)))


async def test_cancelling_a_queued_search_lets_the_next_one_in(
    bundle: Bundle, runner: EngineRunner, ask: Ask, gate: ForwardGate
) -> None:
    """Two fill the engine, two wait; one of those leaves, and a third comes."""
    stages: list[str] = []
    running = [asyncio.create_task(runner.search(ask(number, beam_width=64))) for number in (1, 2)]
    await gate.arrival(1)
    gone = asyncio.create_task(runner.search(ask(3, beam_width=64), stages.append))
    waiting = asyncio.create_task(runner.search(ask(4, beam_width=64)))
    await asyncio.sleep(0)  # by then they lie in the inbox, which the engine empties before its next step
    gate.open()
    await gate.arrival(2)
    assert runner.engine.num_waiting == 2
    gone.cancel()
    third = asyncio.create_task(runner.search(ask(5, beam_width=64)))
    gate.lift()
    results = await asyncio.gather(*running, waiting, third)
    for number, result in zip((1, 2, 4, 5), results, strict=True):
        assert_same(result, alone(bundle, ask(number, beam_width=64)))
    assert gone.cancelled()
    assert stages == ["queue"]


async def test_a_search_cancelled_before_the_engine_saw_it_is_never_run(
    runner: EngineRunner, ask: Ask, gate: ForwardGate
) -> None:
    first = asyncio.create_task(runner.search(ask(1)))
    await gate.arrival(1)
    unseen = asyncio.create_task(runner.search(ask(2)))
    await asyncio.sleep(0)
    unseen.cancel()
    await asyncio.wait([unseen])  # by then the engine has been told
    gate.lift()
    await first
    await until(lambda: runner.engine.is_idle)
    assert unseen.cancelled()
    assert gate.num_arrived == 3  # the first one's own


@pytest.mark.parametrize(
    ("method", "reason"),
    [("_advance", "the step failed: ZeroDivisionError"), ("_finish", "the step failed: ZeroDivisionError")],
)
async def test_a_fault_inside_a_step_fails_its_requests_alone(
    bundle: Bundle,
    runner: EngineRunner,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    reason: str,
) -> None:
    monkeypatch.setattr(BeamEngine, method, raising_once(ZeroDivisionError(), getattr(BeamEngine, method)))
    with pytest.raises(EngineFailure, match=reason):
        await runner.search(ask(1))
    assert_same(await runner.search(ask(2)), alone(bundle, ask(2)))


async def test_a_forward_that_raises_fails_its_requests_alone(
    bundle: Bundle, runner: EngineRunner, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bundle.model, "hidden", raising_once(RuntimeError("an illegal memory access"), bundle.model.hidden)
    )
    with pytest.raises(EngineFailure, match="the prefill step failed: RuntimeError"):
        await runner.search(ask(1))
    assert_same(await runner.search(ask(2)), alone(bundle, ask(2)))


@pytest.mark.parametrize("method", ["submit", "cancel"])
async def test_a_fault_between_steps_does_not_end_the_thread(
    bundle: Bundle, runner: EngineRunner, ask: Ask, gate: ForwardGate, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(BeamEngine, method, raising_once(ZeroDivisionError(), getattr(BeamEngine, method)))
    unlucky = asyncio.create_task(runner.search(ask(1)))
    if method == "cancel":
        await gate.arrival(1)
        unlucky.cancel()
    gate.lift()
    with pytest.raises(asyncio.CancelledError if method == "cancel" else EngineFailure):
        await asyncio.wait_for(unlucky, 5)
    assert_same(await asyncio.wait_for(runner.search(ask(2)), 5), alone(bundle, ask(2)))


async def test_logits_that_are_no_numbers_fail_alone(runner: EngineRunner, ask: Ask, bundle: Bundle) -> None:
    expected, token = alone(bundle, ask(2)), 5
    poisoned = replace(ask(1), prompt=np.array([258, token]))  # a byte, which no search generates
    embedding = bundle.model._weights.embedding
    before = embedding[token].clone()
    embedding[token] = torch.nan
    try:
        bad, good = await asyncio.gather(runner.search(poisoned), runner.search(ask(2)), return_exceptions=True)
    finally:
        embedding[token] = before
    assert isinstance(bad, ModelOutputError)
    assert isinstance(good, BeamResult)
    assert_same(good, expected)


async def test_stopping_fails_what_is_under_way(bundle: Bundle, ask: Ask, gate: ForwardGate) -> None:
    runner = EngineRunner(BeamEngine(bundle.model, replace(LIMITS, max_steps=3, max_rows=64)), "tiny")
    running = asyncio.create_task(runner.search(ask(1, beam_width=64)))
    await gate.arrival(1)
    waiting = asyncio.create_task(runner.search(ask(2, beam_width=64)))
    await asyncio.sleep(0)
    stopping = asyncio.create_task(asyncio.to_thread(runner.stop))
    await until(lambda: runner._stopping)
    gate.lift()
    await asyncio.wait_for(stopping, 5)
    outcomes = await asyncio.gather(running, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotReady, NotReady]
    assert "engine-tiny" not in {thread.name for thread in threading.enumerate()}
    assert_all_free(runner.engine)
    with pytest.raises(NotReady):
        await runner.search(ask(3))


async def test_an_idle_runner_stops_at_once(bundle: Bundle) -> None:
    runner = EngineRunner(BeamEngine(bundle.model, replace(LIMITS, max_steps=3)), "tiny")
    started = time.monotonic()
    runner.stop()
    runner.stop()  # a second time changes nothing
    assert time.monotonic() - started < 1


def test_an_asker_whose_loop_is_gone_does_not_end_the_thread(bundle: Bundle, ask: Ask, gate: ForwardGate) -> None:
    runner = EngineRunner(BeamEngine(bundle.model, replace(LIMITS, max_steps=3)), "tiny")

    async def leave_without_answer() -> None:
        asyncio.get_running_loop().call_later(0.01, asyncio.current_task().cancel)  # type: ignore[union-attr]
        await runner.search(ask(1))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(leave_without_answer())
    gate.lift()
    assert_same(asyncio.run(runner.search(ask(2))), alone(bundle, ask(2)))
    runner.stop()


async def test_nothing_is_prepared_by_an_engine_that_is_stopping(runner: EngineRunner, ask: Ask) -> None:
    runner.stop()
    with pytest.raises(NotReady):
        await runner.prepare(ask(1))


async def test_whoever_leaves_a_preparation_disturbs_nobody(
    bundle: Bundle, runner: EngineRunner, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has begun ends for nobody, one that has not is left out, and searches go on."""
    begun: list[BeamRequest] = []
    may_end = threading.Event()

    def prepare(_: BeamEngine, request: BeamRequest) -> None:
        begun.append(request)
        assert may_end.wait(5)

    monkeypatch.setattr(BeamEngine, "prepare", prepare)
    requests = ask(1), ask(2)
    leaving = [asyncio.create_task(runner.prepare(request)) for request in requests]
    await until(lambda: len(begun) == 1)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    searching = asyncio.create_task(runner.search(ask(3)))
    await asyncio.sleep(0)
    may_end.set()
    assert_same(await searching, alone(bundle, ask(3)))
    assert begun == [requests[0]]
    assert runner.failed_steps == 0
    await runner.prepare(requests[1])
    assert begun == list(requests)
