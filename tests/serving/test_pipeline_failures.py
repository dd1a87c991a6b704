"""How a question ends when it gets no answer: faults, full queues, deadlines, callers that leave."""

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from recall_service.engine.request import Priority
from recall_service.errors import (
    DeadlineExpired,
    EngineFailure,
    Overloaded,
)
from recall_service.serving.query import CacheMode, ServedFrom
from tests.engine.driving import assert_all_free
from tests.rpc.fake_backend import until
from tests.serving.bundles import LIMITS
from tests.serving.forward_gate import ForwardGate
from tests.serving.served import Served


def slow_down(served: Served, monkeypatch: pytest.MonkeyPatch, seconds: float, num_forwards: int = 1) -> None:
    """Make the next forwards of the default bundle's model take so long."""
    model = served.live().bundle.model
    forward, delays = model.hidden, [seconds] * num_forwards

    def slow_forward(*arguments: Any) -> Any:
        if delays:
            time.sleep(delays.pop())
        return forward(*arguments)

    monkeypatch.setattr(model, "hidden", slow_forward)


def stand_still(served: Served, monkeypatch: pytest.MonkeyPatch) -> ForwardGate:
    """Let no forward of the default bundle's model pass, until the test says so."""
    model = served.live().bundle.model
    forwards = ForwardGate(model.hidden)
    monkeypatch.setattr(model, "hidden", forwards)
    return forwards


async def test_a_failed_step(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("an illegal memory access")

    with monkeypatch.context() as patch:
        patch.setattr(served.live().bundle.model, "hidden", fail)
        with pytest.raises(EngineFailure):
            await served.recall()
    assert served.observer.verdicts == [("failed", "feed")]
    assert (await served.recall()).served_from is ServedFrom.ENGINE


async def test_a_full_queue(directories: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """One runs, one waits, four are refused; asked again, the waiting one's question is answered from the cache."""
    served = Served(directories[0], limits=dataclasses.replace(LIMITS, max_rows=64, max_queue_rows=72))
    slow_down(served, monkeypatch, 0.2)
    calls = [served.recall((f"item-{number:03d}",), beam_width=64) for number in range(6)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
    assert len(refused) == 4
    assert refused[0].retry_after_seconds > 0
    assert served.observer.of("rejected") == [("rejected", "queue_full")] * 4
    assert (await served.recall(("item-001",), beam_width=64)).served_from is ServedFrom.LOCAL_CACHE
    served.registry.close()


async def test_what_waits_is_seen_while_a_step_goes_on(
    directories: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine itself has not seen it yet."""
    served = Served(directories[0], limits=dataclasses.replace(LIMITS, max_rows=64))
    forwards = stand_still(served, monkeypatch)
    calls = [asyncio.create_task(served.recall(("item-000",), beam_width=64))]
    await forwards.arrival(1)
    calls += [asyncio.create_task(served.recall((f"item-{number:03d}",), beam_width=64)) for number in (1, 2)]
    await until(lambda: served.live().runner.gate.num_inside == 3)
    assert served.live().runner.engine.num_waiting == 0
    load = served.registry.load()
    assert (load["queue_depth"], load["queue_rows"], load["inflight_requests"]) == (2, 128, 1)
    assert load["queue_tokens"] > 0
    forwards.lift()
    await asyncio.gather(*calls)
    load = served.registry.load()
    assert load["queue_depth"] == load["queue_rows"] == load["queue_tokens"] == 0
    served.registry.close()


@pytest.mark.parametrize("mode", CacheMode)
async def test_a_refusal_counts_by_the_limit_that_was_met(
    served: Served, mode: CacheMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_down(served, monkeypatch, 0.05, num_forwards=15)
    for number in range(4):
        await served.recall((f"item-{number:03d}",))
    patient = asyncio.create_task(served.recall(("item-010",)))
    await until(lambda: served.live().runner.gate.num_inside == 1)
    num_stages, num_asked = len(served.observer.of("stage")), len(served.observer.of("cache_request"))
    with pytest.raises(Overloaded):
        await served.recall(("item-011",), cache_mode=mode, deadline=time.monotonic() + 0.05)
    assert served.observer.of("rejected") == [("rejected", "deadline")]
    stages = [name for _, name in served.observer.of("stage")[num_stages:]]
    asked = [result for _, _, result in served.observer.of("cache_request")[num_asked:]]
    # Nothing is done for what is refused, but a look for an answer where one may be used.
    assert (stages, asked) == ((["cache_get"], ["miss"]) if mode is CacheMode.USE else ([], []))
    await patient


async def test_only_those_who_lead_pass_the_gate_and_a_follower_still_ends_at_its_deadline(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P30: equal questions take up one place, however many they are."""
    slow_down(served, monkeypatch, 0.5)
    gate = served.live().runner.gate
    leader = asyncio.create_task(served.recall())
    await until(lambda: gate.num_inside == 1)
    followers = [asyncio.create_task(served.recall()) for _ in range(20)]
    started = time.monotonic()
    with pytest.raises(DeadlineExpired):
        await served.recall(deadline=started + 0.1)
    assert time.monotonic() - started < 0.4
    assert gate.num_inside == 1
    answers = await asyncio.gather(leader, *followers)
    assert {answer.item_ids for answer in answers} == {answers[0].item_ids}


async def test_who_is_in_a_hurry_does_not_follow_who_lets_others_go_first(
    directories: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One runs; of two equal questions behind it the urgent one, asked last, is answered first."""
    served = Served(directories[0], limits=dataclasses.replace(LIMITS, max_rows=64))
    forwards = stand_still(served, monkeypatch)
    gate = served.live().runner.gate
    running = asyncio.create_task(served.recall(("item-001",), beam_width=64))
    await forwards.arrival(1)
    calls = []
    answered: list[asyncio.Task[Any]] = []
    for priority in (Priority.LOW, Priority.HIGH):
        calls.append(asyncio.create_task(served.recall(("item-002",), beam_width=64, priority=priority)))
        calls[-1].add_done_callback(answered.append)  # in order, even where the loop sees both end at once
        await asyncio.sleep(0)
    assert gate.num_inside == 3
    forwards.lift()
    await asyncio.wait([running, *calls])
    low, high = calls
    assert answered == [high, low]
    assert (await low).item_ids == (await high).item_ids
    served.registry.close()


async def test_a_deadline_passes_while_a_long_step_runs(
    directories: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is in the step, one waits behind it: both are told at their deadline, not when the step ends."""
    served = Served(directories[0], limits=dataclasses.replace(LIMITS, max_rows=64))
    slow_down(served, monkeypatch, 1.0)
    patient = asyncio.create_task(served.recall(beam_width=64, cache_mode=CacheMode.BYPASS))
    started = time.monotonic()
    await until(lambda: served.live().runner.engine.num_running == 1)
    hasty = served.recall(beam_width=64, deadline=started + 0.2, cache_mode=CacheMode.BYPASS)
    with pytest.raises(DeadlineExpired) as caught:
        await hasty
    assert time.monotonic() - started < 0.6
    assert caught.value.stage == "queue"
    assert served.observer.verdicts == [("failed", "feed"), ("deadline_expired", "queue")]
    assert len((await patient).item_ids) == 10

    slow_down(served, monkeypatch, 1.0)
    started = time.monotonic()
    with pytest.raises(DeadlineExpired) as caught:
        await served.recall(deadline=started + 0.2, cache_mode=CacheMode.BYPASS)
    assert time.monotonic() - started < 0.6
    assert caught.value.stage == "prefill"
    served.registry.close()
    assert_all_free(served.live().runner.engine)


async def test_a_deadline_that_has_passed_already(served: Served) -> None:
    with pytest.raises(DeadlineExpired):
        await served.recall(deadline=time.monotonic() - 1)
    assert served.observer.verdicts == [("failed", "feed"), ("deadline_expired", "queue")]


async def test_a_caller_that_leaves_stops_the_work(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(served, monkeypatch, 0.1, num_forwards=3)
    call = asyncio.create_task(served.recall())
    await until(lambda: served.live().runner.engine.num_running == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert served.observer.verdicts == [("failed", "feed")]
    await until(lambda: served.live().runner.engine.is_idle)
    assert len(served.observer.of("step")) < 3


async def test_a_follower_survives_its_leader(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two equal questions takes over when the first one's caller leaves."""
    forwards = stand_still(served, monkeypatch)
    leader, follower = asyncio.create_task(served.recall()), asyncio.create_task(served.recall())
    await forwards.arrival(1)
    leader.cancel()
    forwards.lift()
    assert len((await follower).item_ids) == 10
    assert leader.cancelled()
