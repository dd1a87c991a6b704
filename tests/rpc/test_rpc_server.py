"""The server's life: warm-up, health, reflection, limits, drain."""

import asyncio
from typing import Any, cast

import grpc
import pytest
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from recall_service.errors import SetupError
from recall_service.rpc.connection_options import MAX_REQUEST_BYTES
from recall_service.rpc.health import HealthServicer
from recall_service.rpc.server import SERVICE_NAME, RecallServer
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import FakeBackend, Running, by_history, by_prompt, running, until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ["", "recall.v1.RecallService"]


async def health_of(service: Running, name: str) -> int:
    stub = health_pb2_grpc.HealthStub(service.channel)
    return (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status


def test_the_service_has_the_name_of_the_contract() -> None:
    assert SERVICE_NAME == "recall.v1.RecallService"


@pytest.mark.parametrize("method", ["Recall", "BatchRecall", "GetServingInfo"])
async def test_before_the_end_of_warm_up_every_call_is_refused(method: str) -> None:
    requests = {
        "Recall": by_history(),
        "BatchRecall": recall_pb2.BatchRecallRequest(requests=[by_history()]),
        "GetServingInfo": recall_pb2.GetServingInfoRequest(),
    }
    backend = FakeBackend()
    async with running(backend, serving=False) as service:
        assert [await health_of(service, name) for name in SERVICES] == [NOT_SERVING] * 2
        with pytest.raises(grpc.aio.AioRpcError, match="warming up") as caught:
            await getattr(service.stub, method)(requests[method])
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert service.observer.rejections == ["not_ready"]
        assert service.observer.handled == [(method, "UNAVAILABLE")]
        await service.server.mark_serving()
        assert [await health_of(service, name) for name in SERVICES] == [SERVING] * 2
        await getattr(service.stub, method)(requests[method])


async def test_health_of_an_unknown_service_is_not_found() -> None:
    async with running(FakeBackend()) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(service, "other.Service")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_service_and_gives_its_proto() -> None:
    async with running(FakeBackend()) as service:
        stub = reflection_pb2_grpc.ServerReflectionStub(service.channel)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE_NAME),
        ]
        services, files = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
    names = {listed.name for listed in services.list_services_response.service}
    assert names == {SERVICE_NAME, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert files.file_descriptor_response.file_descriptor_proto == [
        recall_pb2.DESCRIPTOR.serialized_pb,
        duration_pb2.DESCRIPTOR.serialized_pb,  # which it imports
    ]


async def test_a_message_over_the_limit_is_refused_and_the_server_goes_on() -> None:
    async with running(FakeBackend()) as service:
        too_large = by_history("x" * MAX_REQUEST_BYTES)
        with pytest.raises(grpc.aio.AioRpcError, match=f"larger than max .*{MAX_REQUEST_BYTES}") as caught:
            await service.stub.Recall(too_large, timeout=10)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        just_fits = by_prompt(*[1] * 4_000_000)
        with pytest.raises(grpc.aio.AioRpcError, match="4,000,000 token ids; bundle main takes at most 512"):
            await service.stub.Recall(just_fits, timeout=10)
        await service.stub.Recall(by_history())


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with running(FakeBackend()) as service:
        second = RecallServer(FakeBackend(), service.address)
        with pytest.raises(SetupError, match=f"cannot listen on {service.address}; free the port, or give another"):
            await second.start()


async def test_draining_refuses_new_calls_and_finishes_those_inside() -> None:
    gate = asyncio.Event()
    backend = FakeBackend(gate=gate)
    async with running(backend, drain_notice_seconds=0.1) as service:
        watch = health_pb2_grpc.HealthStub(service.channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE_NAME))
        assert (await watch.read()).status == SERVING
        inside = [service.stub.Recall(by_history(num_items=count)) for count in (1, 2, 3)]
        await until(lambda: len(backend.queries) == 3)

        drain = asyncio.create_task(service.server.drain())
        assert (await watch.read()).status == NOT_SERVING
        await until(lambda: not service.server.lets_calls_in)
        with pytest.raises(grpc.aio.AioRpcError, match="shutting down") as caught:
            await service.stub.Recall(by_history())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert service.observer.rejections == ["not_ready"]
        await service.server.mark_serving()  # a warm-up that ends now opens nothing
        assert await health_of(service, "") == NOT_SERVING
        assert not drain.done()

        gate.set()
        assert [len((await call).items) for call in inside] == [1, 2, 3]
        assert await watch.read() is grpc.aio.EOF
        assert await watch.code() is grpc.StatusCode.OK
        await asyncio.wait_for(drain, 5)


async def test_who_is_unwell_says_so_and_lets_calls_in_all_the_same() -> None:
    async with running(FakeBackend(), serving=False) as service:
        await service.server.set_healthy(False)
        await service.server.mark_serving()
        assert await health_of(service, "") == NOT_SERVING
        await service.stub.Recall(by_history())
        await service.server.set_healthy(True)
        assert await health_of(service, "") == SERVING
        await service.server.set_healthy(False)
        assert [await health_of(service, name) for name in SERVICES] == [NOT_SERVING] * 2
        assert service.observer.readiness == [False, False, False, True, False]


async def test_a_draining_server_is_not_ready_whatever_it_hears() -> None:
    async with running(FakeBackend(), drain_notice_seconds=30) as service:  # the calls below come within the notice
        assert service.observer.readiness == [False, True]
        drain = asyncio.create_task(service.server.drain())
        await until(lambda: len(service.observer.readiness) == 3)
        await service.stub.Recall(by_history())
        await service.server.set_healthy(True)
        assert await health_of(service, "") == NOT_SERVING
        assert service.observer.readiness[2:] == [False, False]
        drain.cancel()


async def test_a_call_that_outlasts_the_drain_is_cut_off() -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend, drain_seconds=0.05) as service:
        call = service.stub.Recall(by_history())
        await backend.entered.wait()
        await asyncio.wait_for(service.server.drain(), 5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert backend.num_cancelled == 1


async def test_a_watcher_that_leaves_is_forgotten() -> None:
    async with running(FakeBackend()) as service:
        watch = health_pb2_grpc.HealthStub(service.channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        watch.cancel()
        assert await watch.code() is grpc.StatusCode.CANCELLED
        assert await health_of(service, "") == SERVING


async def test_a_watcher_that_comes_after_the_end_is_let_go_at_once() -> None:
    """It would otherwise hold up the stop of the server for as long as the grace lasts."""
    health = HealthServicer(SERVICE_NAME)
    health.end_watches()
    context = cast("grpc.aio.ServicerContext[Any, Any]", None)  # not even looked at
    watch = asyncio.create_task(health.Watch(health_pb2.HealthCheckRequest(), context))
    done, _ = await asyncio.wait([watch], timeout=1)
    assert done == {watch}
    assert watch.exception() is None
