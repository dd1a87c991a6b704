"""A server process under load that is told to go."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recall_service.stubs.recall.v1 import recall_pb2_grpc
from tests.rpc.fake_backend import by_history
from tests.rpc.serve_fake import SCENE_OF_HOURS

REPOSITORY = Path(__file__).parents[2]


class Served:
    """The process and a channel to it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: grpc.aio.Channel) -> None:
        self.process = process
        self.stub = recall_pb2_grpc.RecallServiceStub(channel)
        self.watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 10)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rpc.serve_fake", cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await asyncio.wait_for(process.stdout.readline(), 30))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Served(process, channel)
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_sigterm_under_load_loses_no_accepted_call(served: Served) -> None:
    """Health says NOT_SERVING while calls are still being answered; each call is answered, or told UNAVAILABLE."""
    outcomes: list[str] = []
    unavailable_after_not_serving: list[bool] = []
    not_serving = asyncio.Event()

    async def keep_calling() -> None:
        while True:
            try:
                outcomes.append("answered" if (await served.stub.Recall(by_history())).items else "empty")
            except grpc.aio.AioRpcError as error:
                outcomes.append(f"{error.code().name}: {error.details()}")
                unavailable_after_not_serving.append(not_serving.is_set())
                return

    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    callers = [asyncio.create_task(keep_calling()) for _ in range(20)]
    await asyncio.sleep(0.3)
    served.process.send_signal(signal.SIGTERM)
    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    not_serving.set()
    answered_before = outcomes.count("answered")
    await asyncio.wait_for(asyncio.gather(*callers), 10)

    assert await served.watch.read() is grpc.aio.EOF
    assert await served.exit_code() == 0
    assert answered_before >= 20
    assert outcomes.count("answered") == answered_before + 20  # each caller had a call inside, and none was lost
    print(sorted(set(outcomes)))
    assert outcomes.count("UNAVAILABLE: the server is shutting down; ask another replica") == 20
    assert len(outcomes) == answered_before + 40
    assert all(unavailable_after_not_serving)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_an_idle_server_ends_at_once(served: Served, number: signal.Signals) -> None:
    served.process.send_signal(number)
    assert await served.exit_code() == 0


async def test_a_second_signal_does_not_wait_for_those_inside(served: Served) -> None:
    call = served.stub.Recall(by_history(scene=SCENE_OF_HOURS))
    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    await served.stub.Recall(by_history())  # the one of hours is inside by now
    served.process.send_signal(signal.SIGTERM)
    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert not call.done()
    served.process.send_signal(signal.SIGTERM)
    assert await served.exit_code() == 0
    assert await call.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
