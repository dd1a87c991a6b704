"""Connections: pings that are welcome, ages that cut no call, limits of messages and of calls at once."""

import asyncio
from typing import Any

import grpc
import pytest

from recall_service.rpc.authentication import Authentication, Caller, Right
from recall_service.rpc.connection_options import (
    MAX_CALLS_PER_CONNECTION,
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    ConnectionOptions,
)
from recall_service.rpc.server import RecallServer
from recall_service.setting_values import host_and_port
from recall_service.stubs.recall.v1 import recall_pb2_grpc
from tests.rpc.fake_backend import FakeBackend, by_history, running, until

PINGS_EVERY_10_SECONDS = 10_000
SHORTER = 10  # times; gRPC sends no more than one ping in a second


def test_what_grpc_is_told() -> None:
    told = dict(ConnectionOptions(1000, 30.0, 90.0).channel_arguments(drain_seconds=20.0))
    assert told["grpc.max_receive_message_length"] == 1000
    assert told["grpc.max_send_message_length"] == MAX_RESPONSE_BYTES > MAX_REQUEST_BYTES
    assert told["grpc.max_concurrent_streams"] == MAX_CALLS_PER_CONNECTION
    assert told["grpc.keepalive_time_ms"] == 30_000
    assert told["grpc.max_connection_age_ms"] == 90_000
    assert told["grpc.max_connection_age_grace_ms"] > 20_000
    assert told["grpc.http2.min_ping_interval_without_data_ms"] <= PINGS_EVERY_10_SECONDS * 0.6
    assert told["grpc.so_reuseport"] == 0


def test_what_grpc_cannot_hold_is_as_much_as_it_can() -> None:
    told = dict(ConnectionOptions(1, 1e12, 1e-9).channel_arguments(drain_seconds=1.0))
    assert (told["grpc.keepalive_time_ms"], told["grpc.max_connection_age_ms"]) == (2**31 - 1, 1)


def shortened(arguments: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The same, with times so much shorter."""
    return [(name, value // SHORTER if name.endswith("_ms") else value) for name, value in arguments]


async def lives_through_pings(arguments: list[tuple[str, int]]) -> bool:
    """Whether an idle client that pings every 10 seconds keeps its connection for 50 of them, all shortened."""
    server = grpc.aio.server(options=arguments)

    async def echo(request: bytes, _: Any) -> bytes:
        return request

    server.add_registered_method_handlers("a.B", {"Echo": grpc.unary_unary_rpc_method_handler(echo)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pings = (
        ("grpc.keepalive_time_ms", PINGS_EVERY_10_SECONDS // SHORTER),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=pings) as channel:
        await channel.unary_unary("/a.B/Echo")(b"")
        lost = asyncio.create_task(channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        done, _ = await asyncio.wait([lost], timeout=50 / SHORTER)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
    await server.stop(None)
    return not done


async def test_a_client_that_pings_every_10_seconds_is_not_sent_away() -> None:
    """By a server without our options it is, or this test would see nothing."""
    ours = shortened(ConnectionOptions().channel_arguments(drain_seconds=20.0))
    assert await asyncio.gather(lives_through_pings(ours), lives_through_pings([])) == [True, False]


async def test_a_call_under_way_outlives_the_age_of_its_connection() -> None:
    gate = asyncio.Event()
    backend = FakeBackend(gate=gate)
    young = ConnectionOptions(max_connection_age_seconds=0.2)
    async with running(backend, connections=young) as service:
        call = service.stub.Recall(by_history())
        await until(lambda: len(backend.queries) == 1)
        await asyncio.sleep(0.8)
        gate.set()
        assert len((await call).items) == 3


async def test_an_aged_connection_is_replaced_without_an_error() -> None:
    """New connections are what lets new replicas get calls."""
    peers: set[str] = set()

    class RememberingAuthentication(Authentication):
        def admit(self, context: grpc.aio.ServicerContext[Any, Any], right: Right) -> Caller:
            peers.add(context.peer())
            return super().admit(context, right)

    young = ConnectionOptions(max_connection_age_seconds=0.1)
    async with running(FakeBackend(), connections=young, authentication=RememberingAuthentication()) as service:
        for _ in range(40):
            await service.stub.Recall(by_history())
            await asyncio.sleep(0.02)
    assert service.observer.handled == [("Recall", "OK")] * 40
    assert len(peers) >= 3


async def test_the_limit_of_a_message_is_the_settings_one() -> None:
    async with running(FakeBackend(), connections=ConnectionOptions(max_request_bytes=2_000)) as service:
        await service.stub.Recall(by_history("x" * 200))
        with pytest.raises(grpc.aio.AioRpcError, match=r"larger than max \(\d+ vs\. 2000\)") as caught:
            await service.stub.Recall(by_history("x" * 2_000))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert service.observer.started == ["Recall"]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1:7"),
        ("recall.internal", "recall.internal:7"),
        ("::1", "[::1]:7"),
        ("[::1]", "[::1]:7"),
        ("::", "[::]:7"),
    ],
)
def test_an_ipv6_address_stands_in_brackets(host: str, address: str) -> None:
    assert host_and_port(host, 7) == address


async def test_it_listens_on_ipv6() -> None:
    server = RecallServer(FakeBackend(), host_and_port("::1", 0))
    port = await server.start()
    await server.mark_serving()
    async with grpc.aio.insecure_channel(host_and_port("::1", port)) as channel:
        response = await recall_pb2_grpc.RecallServiceStub(channel).Recall(by_history(), timeout=5)
    await server.stop()
    assert len(response.items) == 3
