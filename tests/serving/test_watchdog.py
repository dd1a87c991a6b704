"""An engine that is stuck in a step, or fails every one, is found out, and found to be well again."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from recall_service.engine.engine import BeamEngine
from recall_service.errors import EngineFailure, ModelOutputError, NotReady, Overloaded, RecallError
from recall_service.serving import engine_runner, watchdog
from recall_service.serving.engine_runner import EngineRunner
from recall_service.serving.query import CacheMode, ServedFrom
from recall_service.serving.swapping.changes import BundleState
from recall_service.serving.watchdog import FAILED_STEPS, Watchdog
from tests.rpc.fake_backend import until
from tests.serving.cache_fakes import eventually
from tests.serving.fake_time import FakeTime
from tests.serving.forward_gate import ForwardGate
from tests.serving.served import Served

STUCK_SECONDS = 0.1


@pytest.fixture
def forwards(served: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForwardGate]:
    """The default bundle's model stands still from here on."""
    model = served.live().bundle.model
    forwards = ForwardGate(model.hidden)
    monkeypatch.setattr(model, "hidden", forwards)
    yield forwards
    forwards.lift()


@asynccontextmanager
async def watched(served: Served) -> AsyncIterator[list[bool]]:
    """What a watchdog over the engines says, as it says it."""
    said: list[bool] = []

    async def on_change(healthy: bool) -> None:
        said.append(healthy)

    dog = asyncio.create_task(Watchdog(served.registry, stuck_step_seconds=STUCK_SECONDS, on_change=on_change).run())
    yield said
    dog.cancel()
    with suppress(asyncio.CancelledError):
        await dog


def told_to_look(served: Served, stuck_step_seconds: float = 60.0) -> tuple[Watchdog, list[bool]]:
    """A watchdog that looks only when told to, and what it says. It takes no pause of the machine for a stuck step."""
    said: list[bool] = []

    async def on_change(healthy: bool) -> None:
        said.append(healthy)

    return Watchdog(served.registry, stuck_step_seconds=stuck_step_seconds, on_change=on_change), said


def fresh(served: Served, **fields: Any) -> Any:
    return served.recall(cache_mode=CacheMode.BYPASS, **fields)


async def test_a_step_that_never_ends(served: Served, forwards: ForwardGate) -> None:
    """Those inside are told to go elsewhere, those who come are too, and what is cached is still served."""
    forwards.lift()
    await served.recall()
    stuck = ForwardGate(forwards._forward)
    served.live().bundle.model.hidden = stuck
    async with watched(served) as said:
        inside = [asyncio.create_task(fresh(served)) for _ in range(3)]
        await until(lambda: said == [False])
        for outcome in await asyncio.wait_for(asyncio.gather(*inside, return_exceptions=True), 2):
            assert isinstance(outcome, NotReady)
            assert "in one step for more than 0.1 s; ask another replica" in str(outcome)
        started = time.monotonic()
        with pytest.raises(NotReady):
            await fresh(served)
        assert (await served.recall()).served_from is ServedFrom.LOCAL_CACHE
        assert len((await fresh(served, history=("item-104",), bundle="other")).item_ids) == 10
        assert time.monotonic() - started < 2
        assert said == [False]
        stuck.lift()
        await until(lambda: said == [False, True])
        assert len((await fresh(served)).item_ids) == 10
    assert served.observer.of("engine_health") == [
        ("engine_health", "tiny", True),
        ("engine_health", "other", True),
        ("engine_health", "tiny", False),
        ("engine_health", "tiny", True),
    ]
    assert served.observer.of("rejected") == [("rejected", "not_ready")] * 4


async def test_steps_that_are_slow_but_end_are_no_reason(
    served: Served, forwards: ForwardGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime.of(monkeypatch, watchdog, engine_runner)
    dog, said = told_to_look(served, STUCK_SECONDS)
    search = asyncio.create_task(fresh(served))
    for number in range(1, 4):
        await forwards.arrival(number)
        clock.wait(0.9 * STUCK_SECONDS)
        await dog.look()
        forwards.open()
    await search
    clock.wait(2 * STUCK_SECONDS)  # idle, which is no step
    await dog.look()
    assert said == []


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("CUDA error: an illegal memory access"), EngineFailure),
        (torch.OutOfMemoryError("out of memory"), Overloaded),
    ],
    ids=["lost device", "no memory"],
)
async def test_an_engine_that_fails_every_step(
    served: Served, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[RecallError]
) -> None:
    """Nobody asks it any more then, so the watchdog does, and sees when it has come back."""
    await fresh(served)

    def lost(*_: Any) -> None:
        raise error

    dog, said = told_to_look(served)
    with monkeypatch.context() as patch:
        patch.setattr(served.live().bundle.model, "hidden", lost)
        for _ in range(FAILED_STEPS):
            with pytest.raises(raised):
                await fresh(served)
        await dog.look()
        assert said == [False]
        with pytest.raises(NotReady, match="5 steps of the engine or more have failed in a row"):
            await fresh(served)
        failed = served.live().runner.failed_steps

        async def is_asked_again_and_again() -> bool:
            await dog.look()
            return served.live().runner.failed_steps > failed + 1

        await eventually(is_asked_again_and_again)
        assert said == [False]

    async def is_well_again() -> bool:
        await dog.look()
        return said == [False, True]

    await eventually(is_well_again)
    assert len((await fresh(served)).item_ids) == 10


async def test_failures_with_answers_in_between_are_no_reason(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    dog, said = told_to_look(served)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(served.live().bundle.model, "hidden", lost)
            for _ in range(FAILED_STEPS - 1):
                with pytest.raises(EngineFailure):
                    await fresh(served)
                await dog.look()
        await fresh(served)
        await dog.look()
    assert said == []


async def test_what_one_request_makes_of_the_model_is_no_reason(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner: EngineRunner = served.live().runner

    poison = ModelOutputError("the model's logits hold NaN")
    monkeypatch.setattr(type(runner.engine), "_advance", lambda engine, _: engine._fail(engine._running, poison))
    dog, said = told_to_look(served)
    for _ in range(2 * FAILED_STEPS):
        with pytest.raises(ModelOutputError):
            await fresh(served)
        await dog.look()
    assert said == []


async def test_a_thread_that_has_ended(directories: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine cannot even give up what it was doing."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    served = Served(directories[0])
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    async with watched(served) as said:
        with monkeypatch.context() as patch:
            patch.setattr(BeamEngine, "step", broken)
            patch.setattr(BeamEngine, "abort", broken)
            with pytest.raises(NotReady, match="the engine's thread has ended"):
                await asyncio.wait_for(fresh(served), 5)
        await until(lambda: said == [False])
    served.registry.close()


async def test_a_call_between_two_steps_that_never_ends(
    served: Served, forwards: ForwardGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cancelled frees memory of the GPU, and waits for it: a GPU that hangs holds the engine there as well."""
    hung = threading.Event()
    monkeypatch.setattr(BeamEngine, "cancel", lambda *_: hung.wait(10))
    async with watched(served) as said:
        search = asyncio.create_task(fresh(served))
        await forwards.arrival(1)
        search.cancel()
        await asyncio.wait([search])
        forwards.lift()
        await until(lambda: said == [False])
        hung.set()
        await until(lambda: said == [False, True])


async def test_a_look_that_raises_is_not_the_last(served: Served, forwards: ForwardGate) -> None:
    said: list[bool] = []

    async def on_change(healthy: bool) -> None:
        said.append(healthy)
        if len(said) == 1:
            raise ZeroDivisionError

    dog = asyncio.create_task(Watchdog(served.registry, stuck_step_seconds=STUCK_SECONDS, on_change=on_change).run())
    with pytest.raises(NotReady):
        await fresh(served)
    await until(lambda: said == [False, False])  # said again, for nobody knows how far the first time came
    forwards.lift()
    await until(lambda: said == [False, False, True])
    dog.cancel()
    await asyncio.wait([dog])


async def test_operators_see_what_waits_behind_a_stuck_step_and_that_it_is_stuck(
    served: Served, forwards: ForwardGate
) -> None:
    """What the engine has not seen yet waits too; stuck is what the watchdog says, and nothing else."""
    searches = [asyncio.create_task(fresh(served))]
    await forwards.arrival(1)
    searches += [asyncio.create_task(fresh(served, history=(f"item-00{number}",))) for number in range(3)]
    await until(lambda: served.live().runner.gate.num_inside == 4)
    state = BundleState.of(served.live())
    assert (state.waiting, state.running, state.stuck) == (3, 1, False)
    served.live().runner.refuse("lost; ask another replica")
    assert [BundleState.of(live).stuck for live in served.registry] == [True, False]
    await asyncio.gather(*searches, return_exceptions=True)
    forwards.lift()
