"""What operators ask of a replica, and what it does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from recall_service.errors import SetupError
from recall_service.rpc.admin_server import SERVICE_NAME, AdminServer
from recall_service.rpc.admin_servicer import BundleState
from recall_service.rpc.authentication import Authentication
from recall_service.rpc.shutdown import Shutdown
from recall_service.stubs.recall.v1 import admin_pb2, admin_pb2_grpc
from recall_service.tokens import make_token
from tests.rpc.fake_backend import MAIN, SMALL, FakeBackend, RememberingObserver, Running, by_history, running

RANKER, OPERATOR = make_token("ranker", "recall"), make_token("operator", "admin")
STATES = [BundleState(MAIN, waiting=3, running=2, stuck=False), BundleState(SMALL, waiting=0, running=1, stuck=True)]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Administered(NamedTuple):
    served: Running
    address: str
    channel: grpc.aio.Channel
    stub: Any
    shutdown: Shutdown
    observer: RememberingObserver


@asynccontextmanager
async def administered(*, serving: bool = True, bundles: Any = lambda: STATES, **settings: Any) -> AsyncIterator[Any]:
    observer, shutdown = RememberingObserver(), Shutdown()
    async with running(FakeBackend(), serving=serving, drain_notice_seconds=0.5, drain_seconds=7) as served:
        admin = AdminServer(served.server, "127.0.0.1:0", bundles, shutdown, observer=observer, **settings)
        address = f"127.0.0.1:{await admin.start()}"
        async with grpc.aio.insecure_channel(address) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            yield Administered(served, address, channel, stub, shutdown, observer)
        await admin.stop()


def bearer(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


@pytest.mark.parametrize("serving", [True, False], ids=["serving", "warming up"])
async def test_bundles_are_listed_with_their_state(serving: bool) -> None:
    async with administered(serving=serving) as admin:
        listed = await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
    assert listed.serving is serving
    assert [
        (state.info.name, state.waiting_requests, state.running_requests, state.stuck) for state in listed.bundles
    ] == [("main", 3, 2, False), ("small", 0, 1, True)]


async def test_drain_asks_for_the_end_and_does_not_wait_for_it() -> None:
    async with administered() as admin:
        ended = asyncio.create_task(admin.served.server.serve_until(admin.shutdown))
        answers = [await admin.stub.Drain(admin_pb2.DrainRequest()) for _ in range(2)]
        assert [answer.at_most_seconds for answer in answers] == [0.5 + 0.25 + 7 + 0.5] * 2
        await admin.served.stub.Recall(by_history())  # let in while balancers learn of it
        listed = await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
        assert listed.serving
        await asyncio.wait_for(ended, 5)
        listed = await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
        assert not listed.serving
        assert not admin.shutdown.hurried.is_set()  # to ask twice is not to be in a hurry


@pytest.mark.parametrize(
    ("metadata", "code", "reason"),
    [
        ((), "UNAUTHENTICATED", "unauthenticated"),
        (bearer("wrong"), "UNAUTHENTICATED", "unauthenticated"),
        (bearer(RANKER.token), "PERMISSION_DENIED", "permission_denied"),
    ],
    ids=["no token", "wrong token", "wrong right"],
)
@pytest.mark.parametrize("method", ["ListBundles", "Drain"])
async def test_who_may_not_changes_nothing(method: str, metadata: Any, code: str, reason: str) -> None:
    authentication = Authentication([RANKER.entry, OPERATOR.entry])
    async with administered(authentication=authentication) as admin:
        call = admin.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff", metadata=metadata)
        assert caught.value.code().name == code
        assert not admin.shutdown.requested.is_set()
        assert admin.observer.rejections == [reason]
        await call(b"", metadata=bearer(OPERATOR.token))
        assert admin.shutdown.requested.is_set() is (method == "Drain")


@pytest.mark.parametrize("method", ["ListBundles", "Drain"])
async def test_what_is_no_message_is_refused(method: str) -> None:
    async with administered() as admin:
        with pytest.raises(grpc.aio.AioRpcError, match=rf"request: 1 bytes that are no recall\.v1\.{method}Request"):
            await admin.channel.unary_unary(f"/{SERVICE_NAME}/{method}")(b"\xff")
        assert not admin.shutdown.requested.is_set()


async def test_a_fault_inside_says_nothing_of_the_inside() -> None:
    def fail() -> list[BundleState]:
        raise ValueError("a secret of the inside")

    async with administered(bundles=fail) as admin:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)


async def test_its_health_is_that_of_the_server_it_looks_after() -> None:
    async with administered(serving=False) as admin:
        stub = health_pb2_grpc.HealthStub(admin.channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
        await admin.served.server.mark_serving()
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        await admin.served.server.set_healthy(False)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING


async def test_neither_server_answers_for_the_other() -> None:
    async with administered() as admin:
        for channel, method in (
            (admin.channel, "/recall.v1.RecallService/Recall"),
            (admin.served.channel, f"/{SERVICE_NAME}/Drain"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not admin.shutdown.requested.is_set()


async def test_reflection_tells_of_it() -> None:
    async with administered() as admin:
        stub = reflection_pb2_grpc.ServerReflectionStub(admin.channel)
        asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE_NAME)]
        (answer,) = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
    assert admin_pb2.DESCRIPTOR.serialized_pb in answer.file_descriptor_response.file_descriptor_proto


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with administered() as admin:
        second = AdminServer(admin.served.server, admin.address, list, Shutdown())
        with pytest.raises(SetupError, match=f"cannot listen on {admin.address}; free the port"):
            await second.start()
