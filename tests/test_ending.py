"""A server that is told to end before it serves, in a process of its own and in this one; and an operator's Drain."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recall_service.app import Serving, serve
from recall_service.config import Settings
from recall_service.engine.engine import BeamEngine
from recall_service.rpc.shutdown import Shutdown, done_before
from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.stubs.recall.v1 import admin_pb2, admin_pb2_grpc, recall_pb2_grpc
from tests.rpc.fake_backend import by_history, until
from tests.serving.bundles import write_bundle
from tests.serving_here import serving_here, small_settings

REPOSITORY = Path(__file__).parents[1]


def open_for_writing(fifo: Path) -> int:
    """As soon as somebody reads it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_a_signal_while_bundles_load_ends_the_process_in_order(tmp_path: Path) -> None:
    """Its bundle.toml is a pipe into which nothing is ever written, so that it loads for ever."""
    os.mkfifo(tmp_path / "bundle.toml")
    command = [sys.executable, "-m", "recall_service", "serve", "--bundle", str(tmp_path)]
    ports = ["--port", "0", "--metrics-port", "0", "--admin-port", "0"]
    with subprocess.Popen(
        command + ports, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            writer = open_for_writing(tmp_path / "bundle.toml")
            time.sleep(0.5)  # a signal in the instant before a read that never ends is heard when the read ends
            process.send_signal(signal.SIGTERM)
            out, errors = process.communicate(timeout=10)
            os.close(writer)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert out == ""
    (line,) = errors.splitlines()
    assert "told to end by SIGTERM before serving" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
async def test_a_signal_in_the_warm_up_ends_it(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warming, cancelled = asyncio.Event(), False

    async def warm_up(live: LiveBundle) -> None:
        nonlocal cancelled
        warming.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled = True
            raise

    monkeypatch.setattr(LiveBundle, "warm_up", warm_up)
    caplog.set_level("INFO")
    before = signal.getsignal(number)
    server = asyncio.create_task(
        serve(small_settings(write_bundle(tmp_path / "tiny")), lambda _: pytest.fail("it serves"))
    )
    await asyncio.wait_for(warming.wait(), 30)
    os.kill(os.getpid(), number)
    await asyncio.wait_for(server, 10)
    assert cancelled
    assert "told to end while warming up" in caplog.text
    assert signal.getsignal(number) is before


async def started_server(settings: Settings) -> tuple[Serving, asyncio.Task[None]]:
    started: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(settings, started.set_result))
    return await asyncio.wait_for(started, 60), server


async def test_an_operators_drain_ends_the_server(tmp_path: Path) -> None:
    serving, server = await started_server(small_settings(write_bundle(tmp_path / "tiny")))
    async with grpc.aio.insecure_channel(serving.admin_address) as channel:
        answer = await admin_pb2_grpc.AdminServiceStub(channel).Drain(admin_pb2.DrainRequest())
    assert answer.at_most_seconds > 20
    await asyncio.wait_for(server, 10)


class Steps(NamedTuple):
    """Of all engines. free: while it is not set, they wait. begun: set as one begins."""

    free: threading.Event
    begun: threading.Event


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps(threading.Event(), threading.Event())
    steps.free.set()
    step = BeamEngine.step

    def held_step(engine: BeamEngine) -> object:
        steps.begun.set()
        steps.free.wait(30)
        return step(engine)

    monkeypatch.setattr(BeamEngine, "step", held_step)
    return steps


async def test_a_signal_after_an_operators_drain_cuts_off_nobody(tmp_path: Path, steps: Steps) -> None:
    """As an orchestrator does it: its hook before the end drains, then it sends SIGTERM."""
    serving, server = await started_server(small_settings(write_bundle(tmp_path / "tiny")))
    async with (
        grpc.aio.insecure_channel(serving.address) as channel,
        grpc.aio.insecure_channel(serving.admin_address) as operators,
    ):
        steps.free.clear()
        steps.begun.clear()
        call = recall_pb2_grpc.RecallServiceStub(channel).Recall(by_history("item-001"), timeout=30)
        await until(steps.begun.is_set)
        await admin_pb2_grpc.AdminServiceStub(operators).Drain(admin_pb2.DrainRequest())
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        steps.free.set()
        assert (await call).items
    await asyncio.wait_for(server, 10)


async def test_an_engine_stuck_in_a_step_turns_health_and_back(tmp_path: Path, steps: Steps) -> None:
    async with (
        serving_here(small_settings(write_bundle(tmp_path / "tiny"), stuck_step_seconds=0.2)) as serving,
        grpc.aio.insecure_channel(serving.address) as channel,
        grpc.aio.insecure_channel(serving.admin_address) as operators,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        admin = admin_pb2_grpc.AdminServiceStub(operators)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        steps.free.clear()
        call = recall_pb2_grpc.RecallServiceStub(channel).Recall(by_history("item-001"), timeout=30)
        assert (await asyncio.wait_for(watch.read(), 10)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        (state,) = (await admin.ListBundles(admin_pb2.ListBundlesRequest())).bundles
        assert state.stuck
        steps.free.set()
        assert (await asyncio.wait_for(watch.read(), 10)).status == health_pb2.HealthCheckResponse.SERVING
        (state,) = (await admin.ListBundles(admin_pb2.ListBundlesRequest())).bundles
        assert not state.stuck
        await asyncio.gather(call, return_exceptions=True)


async def test_work_that_ends_first_is_done_and_its_error_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("of the work")

    event = asyncio.Event()
    assert await done_before(event, asyncio.sleep(0))
    with pytest.raises(ValueError, match="of the work"):
        await done_before(event, fail())
    event.set()
    assert not await done_before(event, asyncio.sleep(3_600))


async def test_the_first_signal_asks_and_the_second_hurries() -> None:
    shutdown = Shutdown()
    handlers: list[Callable[[], bool]] = [shutdown.requested.is_set, shutdown.hurried.is_set]
    with shutdown.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        await until(shutdown.requested.is_set)
        assert [handler() for handler in handlers] == [True, False]
        shutdown.request()
        assert not shutdown.hurried.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        await until(shutdown.hurried.is_set)


async def test_the_first_signal_after_a_drain_hurries_nobody() -> None:
    shutdown = Shutdown()
    shutdown.request()
    with shutdown.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        assert not shutdown.hurried.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await until(shutdown.hurried.is_set)


def test_a_process_that_has_closed_everything_waits_for_nothing_more() -> None:
    """Neither for what the interpreter does at its end, nor for a thread; and nothing that was written is lost."""
    script = """
import atexit, threading, time
from recall_service.ending import end_now
atexit.register(time.sleep, 60)
threading.Thread(target=time.sleep, args=(60,)).start()
print("the last word")
end_now()
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the last word\n", "")
