"""The three methods over a real connection."""

import logging
import time
from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest

from recall_service import __version__
from recall_service.rpc.admission import Admission
from recall_service.rpc.authentication import Authentication, Right
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.limits import Limits
from recall_service.rpc.observer import NullCallLog, NullCallTracer
from recall_service.rpc.recall_log import NullRecallLog
from recall_service.rpc.request_id import choose_request_id
from recall_service.rpc.servicer import RecallServicer
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import FakeBackend, RememberingObserver, by_history, by_prompt, running


async def test_a_recall_is_answered_and_reported() -> None:
    backend = FakeBackend()
    async with running(backend) as service:
        response = await service.stub.Recall(by_history("x", "y", num_items=5))
    assert [item.item_id for item in response.items] == [f"item-{rank}" for rank in range(5)]
    assert backend.queries[0].history == ("x", "y")
    assert service.observer.started == ["Recall"]
    assert service.observer.handled == [("Recall", "OK")]
    assert service.observer.stages == ["validate", "serialize"]
    assert service.observer.rejections == []


async def test_an_invalid_recall_never_reaches_the_backend() -> None:
    backend = FakeBackend()
    async with running(backend) as service:
        for request in (by_prompt(), by_history(bundle="other")):
            with pytest.raises(grpc.aio.AioRpcError):
                await service.stub.Recall(request)
    assert backend.queries == []
    assert service.observer.rejections == ["invalid", "invalid"]
    assert service.observer.handled == [("Recall", "INVALID_ARGUMENT"), ("Recall", "NOT_FOUND")]


async def test_the_limits_are_those_of_the_addressed_bundle() -> None:
    async with running(FakeBackend()) as service:
        assert len((await service.stub.Recall(by_history(num_items=5))).items) == 5
        with pytest.raises(grpc.aio.AioRpcError, match="bundle small allows at most 4"):
            await service.stub.Recall(by_history(bundle="small", num_items=5))


@pytest.mark.parametrize(
    ("field", "metadata", "expected"),
    [
        pytest.param("f", (("x-request-id", "m"),), "f", id="field wins"),
        pytest.param("", (("x-request-id", "m"),), "m", id="metadata next"),
    ],
)
async def test_the_request_id_is_echoed(field: str, metadata: tuple[tuple[str, str], ...], expected: str) -> None:
    async with running(FakeBackend()) as service:
        response = await service.stub.Recall(by_history(request_id=field), metadata=metadata)
    assert response.request_id == expected


async def test_without_an_id_the_server_makes_one_and_every_response_has_its_own_token() -> None:
    async with running(FakeBackend()) as service:
        responses = [await service.stub.Recall(by_history()) for _ in range(3)]
    assert len({response.request_id for response in responses}) == 3
    assert len({response.attribution_token for response in responses} - {""}) == 3


def test_an_over_long_id_is_passed_over() -> None:
    assert choose_request_id("x" * 129, "fit") == "fit"
    assert len(choose_request_id("", "é" * 65)) == 32


async def test_the_deadline_of_the_call_is_the_deadline_of_the_question() -> None:
    backend = FakeBackend()
    async with running(backend) as service:
        await service.stub.Recall(by_history(), timeout=30)
        await service.stub.Recall(by_history())
    with_deadline, without = backend.queries
    assert with_deadline.deadline is not None
    assert 25 < with_deadline.deadline - time.monotonic() < 35
    assert without.deadline is None


class ExpiredContext:
    """The context of a call that comes too late: no client sends one, so it cannot come over a connection."""

    code: grpc.StatusCode | None = None

    def invocation_metadata(self) -> None:
        return None

    def time_remaining(self) -> float:
        return 0.0

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        callback(self)

    async def abort(self, code: grpc.StatusCode, *details: object) -> None:
        self.code = code
        raise grpc.aio.AbortError


async def test_an_expired_deadline_is_refused_before_any_work() -> None:
    backend, observer, context = FakeBackend(), RememberingObserver(), ExpiredContext()
    admission = Admission()
    admission.open()
    guard = CallGuard(Authentication(), Right.RECALL, admission, observer, observer, NullCallLog(), NullCallTracer())
    servicer = RecallServicer(
        backend, guard, Limits(), observer, NullCallTracer(), NullRecallLog(), max_batch_requests=1
    )
    with pytest.raises(grpc.aio.AbortError):
        await servicer.recall(by_history().SerializeToString(), cast("grpc.aio.ServicerContext[Any, Any]", context))
    assert context.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert backend.queries == []
    assert observer.rejections == ["deadline"]
    assert observer.handled == [("Recall", "DEADLINE_EXCEEDED")]


async def test_serving_info_tells_bundles_versions_and_limits() -> None:
    async with running(FakeBackend(), max_batch_requests=5) as service:
        info = await service.stub.GetServingInfo(recall_pb2.GetServingInfoRequest())
    assert info.server_version == __version__
    assert [bundle.name for bundle in info.bundles] == ["main", "small"]
    assert info.max_batch_requests == 5
    assert service.observer.handled == [("GetServingInfo", "OK")]


async def test_the_entries_of_a_batch_fail_alone(caplog: pytest.LogCaptureFixture) -> None:
    requests = [
        by_history(request_id="first", num_items=2),
        by_history("", num_items=999),
        by_history(bundle="other"),
        by_history(scene="broken"),
        by_history(num_items=1),
    ]
    async with running(FakeBackend()) as service:
        with caplog.at_level(logging.CRITICAL, logger="recall_service"):
            batch = await service.stub.BatchRecall(
                recall_pb2.BatchRecallRequest(requests=requests), metadata=(("x-request-id", "batch"),)
            )
    first, invalid, unknown, broken, last = batch.results
    assert (first.response.request_id, len(first.response.items)) == ("first", 2)
    assert (last.response.request_id, len(last.response.items)) == ("batch-4", 1)
    assert (invalid.failure.code, invalid.failure.reason) == (3, "INVALID_REQUEST")
    assert "requests[1].history.item_ids[0]: empty" in invalid.failure.message
    assert "requests[1].num_items: 999" in invalid.failure.message
    assert (unknown.failure.code, unknown.failure.reason) == (5, "UNKNOWN_VERSION")
    assert (broken.failure.code, broken.failure.reason, broken.failure.request_id) == (13, "INTERNAL", "batch-3")
    assert "secret" not in str(batch)
    assert service.observer.rejections == ["invalid", "invalid"]
    assert service.observer.handled == [("BatchRecall", "OK")]


@pytest.mark.parametrize("num_requests", [0, 4])
async def test_a_batch_of_a_wrong_size_is_refused_as_a_whole(num_requests: int) -> None:
    backend = FakeBackend()
    async with running(backend, max_batch_requests=3) as service:
        with pytest.raises(grpc.aio.AioRpcError, match=f"requests: {num_requests} entries; give 1 to 3") as caught:
            await service.stub.BatchRecall(recall_pb2.BatchRecallRequest(requests=[by_history()] * num_requests))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert backend.queries == []


@pytest.mark.parametrize("method", ["Recall", "BatchRecall", "GetServingInfo"])
async def test_bytes_that_are_no_message_are_refused_and_named(method: str) -> None:
    backend = FakeBackend()
    async with running(backend) as service:
        send = service.channel.unary_unary(f"/recall.v1.RecallService/{method}")
        with pytest.raises(grpc.aio.AioRpcError, match=f"request: 2 bytes that are no recall.v1.{method}") as caught:
            await send(b"\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert backend.queries == []
    assert service.observer.rejections == ["invalid"]
    assert service.observer.handled == [(method, "INVALID_ARGUMENT")]


async def test_nothing_of_a_call_that_is_not_let_in_is_read() -> None:
    async with running(FakeBackend(), serving=False) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.channel.unary_unary("/recall.v1.RecallService/Recall")(b"\xff\xff")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
