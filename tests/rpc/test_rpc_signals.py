"""A server process under load that is told to go."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.stubs.recall.v1 import recall_pb2_grpc
from tests.rpc.fake_backend import by_history, until
from tests.rpc.serve_fake import SCENE_OF_HOURS

REPOSITORY = Path(__file__).parents[2]


async def read_number(process: asyncio.subprocess.Process) -> int:
    assert process.stdout is not None
    return int(await asyncio.wait_for(process.stdout.readline(), 30))


class Served:
    """The process, a channel to it and a client of it."""

    def __init__(
        self, process: asyncio.subprocess.Process, channel: grpc.aio.Channel, client: AsyncRecallClient
    ) -> None:
        self.process = process
        self.client = client
        self.stub = recall_pb2_grpc.RecallServiceStub(channel)
        self.watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())

    async def read_number(self) -> int:
        return await read_number(self.process)

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 10)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rpc.serve_fake", cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE
    )
    address = f"127.0.0.1:{await read_number(process)}"
    async with grpc.aio.insecure_channel(address) as channel, AsyncRecallClient(address) as client:
        yield Served(process, channel, client)
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_sigterm_under_load_loses_no_accepted_call(served: Served) -> None:
    """Every question that the backend answered reaches its caller; all others are told UNAVAILABLE, and only those."""
    num_answered, refusals = 0, []

    async def call_until_refused() -> None:
        nonlocal num_answered
        while True:
            try:
                await served.client.recall(history=["a"], timeout=10)
                num_answered += 1
            except RecallClientError as error:
                refusals.append(error.code)
                return

    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    callers = [asyncio.create_task(call_until_refused()) for _ in range(20)]
    await until(lambda: num_answered >= 20)
    served.process.send_signal(signal.SIGTERM)
    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await served.stub.Recall(by_history())  # from a balancer that has yet to learn of it
    num_answered += 1
    await asyncio.wait_for(asyncio.gather(*callers), 10)

    assert await served.watch.read() is grpc.aio.EOF
    assert await served.exit_code() == 0
    assert refusals == [grpc.StatusCode.UNAVAILABLE] * 20
    assert num_answered == await served.read_number()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_an_idle_server_ends_at_once(served: Served, number: signal.Signals) -> None:
    served.process.send_signal(number)
    assert await served.exit_code() == 0


async def test_a_second_signal_after_the_notice_does_not_wait_either(served: Served) -> None:
    call = served.stub.Recall(by_history(scene=SCENE_OF_HOURS))
    await served.stub.Recall(by_history())
    served.process.send_signal(signal.SIGTERM)

    async def call_until_refused() -> None:
        while True:
            await served.stub.Recall(by_history())

    with pytest.raises(grpc.aio.AioRpcError, match="shutting down"):
        await asyncio.wait_for(call_until_refused(), 10)
    assert not call.done()
    served.process.send_signal(signal.SIGINT)
    assert await served.exit_code() == 0
    assert await call.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_a_second_signal_does_not_wait_for_those_inside(served: Served) -> None:
    call = served.stub.Recall(by_history(scene=SCENE_OF_HOURS))
    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    await served.stub.Recall(by_history())  # the one of hours is inside by now
    served.process.send_signal(signal.SIGTERM)
    assert (await served.watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert not call.done()
    served.process.send_signal(signal.SIGTERM)  # in the notice
    assert await served.exit_code() == 0
    assert await call.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
