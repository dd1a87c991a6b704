"""How a question ends when it gets no answer: faults, full queues, deadlines, callers that leave."""

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest

from recall_service.errors import (
    DeadlineExpired,
    EngineFailure,
    Overloaded,
)
from recall_service.serving.query import CacheMode, ServedFrom
from tests.engine.driving import assert_all_free
from tests.rpc.fake_backend import until
from tests.serving.bundles import LIMITS
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
    served = Served(directories[0], limits=dataclasses.replace(LIMITS, max_rows=64, max_waiting=1))
    slow_down(served, monkeypatch, 0.2)
    calls = [served.recall((f"item-{number:03d}",), beam_width=64) for number in range(6)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Overloaded)]
    assert 1 <= len(refused) < 6
    assert refused[0].retry_after_seconds > 0
    assert served.observer.of("rejected") == [("rejected", "queue_full")] * len(refused)
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
    slow_down(served, monkeypatch, 0.1)
    leader, follower = asyncio.create_task(served.recall()), asyncio.create_task(served.recall())
    await asyncio.sleep(0.02)
    leader.cancel()
    assert len((await follower).item_ids) == 10
    assert leader.cancelled()
