"""Who goes away stops the work; who stays gets a status."""

import asyncio
import time

import grpc
import pytest

from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import FakeBackend, by_history, running, until

BATCH = recall_pb2.BatchRecallRequest(requests=[by_history(), by_history()])


@pytest.fixture
def waiting_backend() -> FakeBackend:
    return FakeBackend(gate=asyncio.Event())


@pytest.mark.parametrize(
    ("method", "request_"), [("Recall", by_history()), ("BatchRecall", BATCH)], ids=["Recall", "BatchRecall"]
)
async def test_a_cancelled_call_cancels_the_backend(
    waiting_backend: FakeBackend, method: str, request_: recall_pb2.RecallRequest
) -> None:
    async with running(waiting_backend) as service:
        call = getattr(service.stub, method)(request_)
        await waiting_backend.entered.wait()
        call.cancel()
        await asyncio.wait_for(waiting_backend.left.wait(), 5)
        await until(lambda: service.observer.handled == [(method, "CANCELLED")])
    assert waiting_backend.num_cancelled == len(waiting_backend.queries)


async def test_a_passed_deadline_cancels_the_backend(waiting_backend: FakeBackend) -> None:
    async with running(waiting_backend) as service:
        await service.channel.channel_ready()  # the call has to get in before its deadline
        # From 1 s on the wire carries deadlines less finely, and the caller's cancellation may come first.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history(), timeout=0.9)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: service.observer.handled == [("Recall", "DEADLINE_EXCEEDED")])
    assert waiting_backend.num_cancelled == 1


async def test_a_future_cancelled_inside_the_server_gives_a_status_at_once() -> None:
    """grpc.aio itself would send nothing, and the caller would wait for its deadline (grpc issue 29248)."""
    async with running(FakeBackend(asyncio.CancelledError())) as service:
        started = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history(), timeout=30)
        assert time.monotonic() - started < 1
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        batch = await service.stub.BatchRecall(BATCH, timeout=30)
    assert [result.failure.code for result in batch.results] == [13, 13]
    assert service.observer.handled == [("Recall", "INTERNAL"), ("BatchRecall", "OK")]


async def test_the_server_goes_on_after_cancelled_calls(waiting_backend: FakeBackend) -> None:
    async with running(waiting_backend) as service:
        calls = [service.stub.Recall(by_history()) for _ in range(3)]
        await until(lambda: len(waiting_backend.queries) == 3)
        calls[0].cancel()
        await until(lambda: waiting_backend.num_cancelled == 1)
        assert waiting_backend.gate is not None
        waiting_backend.gate.set()
        responses = await asyncio.gather(*calls[1:], service.stub.Recall(by_history()))
    assert [len(response.items) for response in responses] == [3, 3, 3]
