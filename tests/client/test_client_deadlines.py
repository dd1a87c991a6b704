"""How long a call may take: the client's timeout, the call's, and what the caller's own caller leaves."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from recall_service.client import AsyncRecallClient, RecallClient, RecallClientError
from recall_service.client.terms import RESERVE_SECONDS
from tests.client.conftest import Ask
from tests.client.replica import Replica, running_replica
from tests.rpc.fake_backend import FakeBackend, running, until


class Context:
    """Of a call that is to be answered within `seconds`."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds

    def time_remaining(self) -> float | None:
        return self._seconds


@pytest.mark.parametrize(
    ("of_client", "of_call", "within", "expected"),
    [
        (30.0, None, None, 30.0),
        (30.0, 20.0, None, 20.0),
        (30.0, 40.0, None, 40.0),
        (30.0, None, Context(10.0), 10.0 - RESERVE_SECONDS),
        (30.0, 5.0, Context(10.0), 5.0),
        (30.0, None, Context(None), 30.0),
        (30.0, None, Context(float("inf")), 30.0),
    ],
    ids=["client", "call", "longer call", "within", "shorter than within", "no deadline", "endless"],
)
async def test_the_shortest_time_bounds_the_call(
    ask: Ask, of_client: float, of_call: float | None, within: Context | None, expected: float
) -> None:
    async with running_replica(Replica(answer=b"")) as replica:
        await ask(replica.address, history=["a"], timeout=of_call, within=within, client={"timeout": of_client})
        await ask(replica.address, "recall_batch", [], timeout=of_call, within=within, client={"timeout": of_client})
    for remaining in replica.remaining:
        assert remaining is not None
        assert expected - 3 < remaining < expected + 0.1


@pytest.mark.parametrize(
    "bounds",
    [{"within": Context(0.0)}, {"within": Context(RESERVE_SECONDS / 2)}, {"timeout": 0.0}, {"timeout": float("nan")}],
    ids=["expired", "reserve", "no timeout", "no number"],
)
async def test_without_time_nothing_is_sent(ask: Ask, bounds: Any) -> None:
    async with running_replica(Replica()) as replica:
        with pytest.raises(RecallClientError, match="DEADLINE_EXCEEDED: no time is left") as caught:
            await ask(replica.address, history=["a"], **bounds)
        with pytest.raises(RecallClientError, match="DEADLINE_EXCEEDED: no time is left"):
            await ask(replica.address, "recall_batch", [{"history": ["a"]}], **bounds)
    assert replica.came == []
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "")


def served(server: Any, page: Callable[..., Any]) -> str:
    """Where the server, of either kind, answers calls to the caller's own service."""
    server.add_registered_method_handlers("shop.Shop", {"Page": grpc.unary_unary_rpc_method_handler(page)})
    return f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"


async def visit(address: str, seconds: float | None) -> None:
    """A call to the caller's own service, which asks ours."""
    async with grpc.aio.insecure_channel(address) as channel:
        method: Callable[..., Awaitable[bytes]] = channel.unary_unary("/shop.Shop/Page")
        await method(b"", timeout=seconds)


def check(remaining: list[float | None]) -> None:
    """The first visit had 10 s, the second no deadline; a deadline of 10 s travels as up to 10.1."""
    bounded, free = remaining
    assert bounded is not None
    assert 5 < bounded < 10.2
    assert free is not None
    assert 50 < free < 61


async def test_within_the_handler_of_an_asyncio_server() -> None:
    async with running_replica(Replica()) as replica, AsyncRecallClient(replica.address, timeout=60) as client:

        async def page(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            await client.recall(history=["a"], within=context)
            return b""

        server = grpc.aio.server()
        address = served(server, page)
        await server.start()
        await visit(address, 10)
        await visit(address, None)
        await server.stop(None)
    check(replica.remaining)


async def test_within_the_handler_of_a_server_with_threads() -> None:
    async with running_replica(Replica()) as replica:
        with RecallClient(replica.address, timeout=60) as client, ThreadPoolExecutor(2) as threads:

            def page(request: bytes, context: grpc.ServicerContext) -> bytes:
                client.recall(history=["a"], within=context)
                return b""

            server = grpc.server(threads)
            address = served(server, page)
            server.start()
            await visit(address, 10)
            await visit(address, None)
            await asyncio.to_thread(server.stop(None).wait)
    check(replica.remaining)


async def test_who_cancels_the_handler_of_an_asyncio_server_cancels_our_work() -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend) as service, AsyncRecallClient(service.address) as client:

        async def page(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
            await client.recall(history=["a"], within=context)
            return b""

        server = grpc.aio.server()
        address = served(server, page)
        await server.start()
        asked = asyncio.create_task(visit(address, 60))
        await backend.entered.wait()
        asked.cancel()
        await until(lambda: backend.num_cancelled == 1)
        await server.stop(None)
