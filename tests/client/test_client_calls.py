"""Both clients against real servers: what is asked, what comes back, and what is raised."""

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from item_catalog.filtering import filters
from recall_service.client import (
    AsyncRecallClient,
    InRange,
    IsIn,
    NotIn,
    Question,
    RecallClientError,
    RecalledItem,
    RecallFailure,
    RecallResult,
)
from recall_service.engine.request import Priority, SearchMode
from recall_service.errors import InvalidRequest, Overloaded, Violation
from recall_service.rpc.status import status_of
from recall_service.serving.query import CacheMode, RecallQuery
from recall_service.stubs.recall.v1 import recall_pb2
from tests.client.conftest import Ask
from tests.client.replica import Replica, running_replica
from tests.rpc.fake_backend import FakeBackend, running, until


async def test_every_argument_reaches_the_backend(ask: Ask) -> None:
    backend = FakeBackend()
    async with running(backend) as service:
        result = await ask(
            service.address,
            history=["x", "y"],
            bundle="main",
            num_items=2,
            beam_width=30,
            where=[
                IsIn("category", ["shoes", "boots"]),
                NotIn("in_stock", {False}),
                InRange("price", above=1, at_most=30.5),
                InRange("published", at_least=-5, below=7),
            ],
            exclude_item_ids=["z"],
            exclude_history=True,
            scene="feed",
            user_id="someone",
            request_id="r-7",
            search_mode="proven",
            cache="bypass",
            priority="high",
            include_steps=True,
            timeout=20,
        )
    (query,) = backend.queries
    assert query.deadline is not None
    assert query == RecallQuery(
        history=("x", "y"),
        bundle="main",
        num_items=2,
        beam_width=30,
        filter=filters.Filter(
            (
                filters.IsIn("category", ("shoes", "boots")),
                filters.NotIn("in_stock", (False,)),
                filters.InRange("price", above=1, at_most=30.5),
                filters.InRange("published", at_least=-5, below=7),
            )
        ),
        exclude_item_ids=("z",),
        exclude_history=True,
        search_mode=SearchMode.PROVEN,
        cache_mode=CacheMode.BYPASS,
        priority=Priority.HIGH,
        include_steps=True,
        deadline=query.deadline,
    )
    assert result.request_id == "r-7"


async def test_the_result_holds_every_field_of_the_response(ask: Ask) -> None:
    async with running(FakeBackend()) as service:
        result = await ask(service.address, prompt=[1, 2, 3], num_items=1, request_id="r", include_steps=True)
    assert len(result.attribution_token) > 10
    assert 0 < result.total_seconds < 5
    assert result == RecallResult(
        request_id="r",
        items=(RecalledItem("item-0", -1.0, (0, 1, 2), (0.0, -0.0625, -0.125), (1, 2, 3)),),
        short_reason="",
        proven_count=2,
        served_from="LOCAL_CACHE",
        bundle="main",
        bundle_version="m1",
        catalog_version="c7",
        score_space="CODEBOOK",
        beam_width=20,
        unknown_history_items=4,
        unknown_excluded_items=6,
        rows_forwarded=61,
        rows_skipped=17,
        attribution_token=result.attribution_token,
        queue_seconds=pytest.approx(1e-6),
        prefill_seconds=pytest.approx(20e-6),
        decode_seconds=pytest.approx(300e-6),
        total_seconds=result.total_seconds,
    )


async def test_an_invalid_question_raises_with_its_violations(ask: Ask) -> None:
    async with running(FakeBackend()) as service:
        with pytest.raises(RecallClientError, match=r"INVALID_ARGUMENT: .*num_items: 999") as caught:
            await ask(service.address, history=[], num_items=999, request_id="r")
    error = caught.value
    assert (error.code, error.reason, error.request_id) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_REQUEST",
        "r",
    )
    assert [violation.field for violation in error.violations] == ["history.item_ids", "num_items"]
    assert error.retry_after_seconds is None


async def test_what_the_pipeline_refuses_has_violations_too(ask: Ask) -> None:
    violation = Violation("prompt.token_ids[1]", "70000; ids are below 65536")
    async with running(FakeBackend(InvalidRequest([violation]))) as service:
        with pytest.raises(RecallClientError) as caught:
            await ask(service.address, prompt=[1, 70_000])
    assert caught.value.violations == (violation,)


async def test_overload_says_when_to_come_back_and_what_was_full(ask: Ask) -> None:
    overloaded = Overloaded("queue full", retry_after_seconds=0.01, limit="client_limit")
    async with running(FakeBackend(overloaded)) as service:
        with pytest.raises(RecallClientError, match="RESOURCE_EXHAUSTED: queue full") as caught:
            await ask(service.address, history=["a"])
    error = caught.value
    assert (error.reason, error.limit, error.retry_after_seconds) == ("OVERLOADED", "client_limit", 0.01)


async def test_an_entry_of_a_batch_says_when_to_come_back_and_what_was_full(ask: Ask) -> None:
    overloaded = Overloaded("queue full", retry_after_seconds=0.01, limit="client_limit")
    async with running(FakeBackend(overloaded)) as service:
        (failure,) = await ask(service.address, "recall_batch", [{"history": ["a"]}])
    assert (failure.reason, failure.limit, failure.retry_after_seconds) == ("OVERLOADED", "client_limit", 0.01)


async def test_the_timeout_holds(ask: Ask) -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend) as service:
        with pytest.raises(RecallClientError) as caught:
            await ask(service.address, history=["a"], timeout=1)
        await until(lambda: backend.num_cancelled == 1)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "")


async def test_a_server_that_is_not_there_is_unavailable(ask: Ask, unused_tcp_port: int) -> None:
    with pytest.raises(RecallClientError) as caught:
        await ask(f"127.0.0.1:{unused_tcp_port}", history=["a"], timeout=5)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "")


async def test_history_and_prompt_together_are_refused(ask: Ask) -> None:
    """The wire can carry only one of them, and would drop the other in silence."""
    with pytest.raises(ValueError, match="both history and prompt are given; give one of them"):
        await ask("127.0.0.1:1", history=["a"], prompt=[1])


async def test_cancelling_the_task_stops_the_backend() -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend) as service, AsyncRecallClient(service.address) as client:
        task = asyncio.create_task(client.recall(history=["a"]))
        await backend.entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: backend.num_cancelled == 1)


async def test_cancelling_one_call_leaves_the_others_alone() -> None:
    gate = asyncio.Event()
    backend = FakeBackend(gate=gate)
    async with running(backend) as service, AsyncRecallClient(service.address) as client:
        tasks = [asyncio.create_task(client.recall(history=["a"])) for _ in range(3)]
        await until(lambda: len(backend.queries) == 3)
        tasks[1].cancel()
        await until(lambda: backend.num_cancelled == 1)
        gate.set()
        first, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert isinstance(first, RecallResult)
    assert isinstance(last, RecallResult)


async def test_every_question_of_a_batch_has_its_own_outcome(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    questions: list[Question] = [
        {"history": ["x"], "num_items": 2, "request_id": "first"},
        {"history": ["x"], "num_items": 999},
        {"history": ["x"], "scene": "broken", "request_id": "third"},
        {"prompt": [1, 2], "num_items": 1},
    ]
    with caplog.at_level(logging.CRITICAL, logger="recall_service"):
        async with running(FakeBackend()) as service:
            first, invalid, broken, last = await ask(service.address, "recall_batch", questions)
    assert (first.request_id, len(first.items), len(last.items)) == ("first", 2, 1)
    assert isinstance(invalid, RecallFailure)
    assert (invalid.code, invalid.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
    assert (invalid.limit, invalid.retry_after_seconds) == ("", None)
    assert "requests[1].num_items: 999" in invalid.message
    assert (broken.code, broken.reason, broken.request_id) == (grpc.StatusCode.INTERNAL, "INTERNAL", "third")


async def test_a_batch_that_is_refused_as_a_whole_raises(ask: Ask) -> None:
    async with running(FakeBackend()) as service:
        with pytest.raises(RecallClientError, match="INVALID_ARGUMENT"):
            await ask(service.address, "recall_batch", [])


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"history": "B001"}, "history: 'B001' is one string; give a list of item ids"),
        ({"history": ["a", 7]}, "history: 7 is no item id; give strings"),
        ({"history": ["a"], "exclude_item_ids": "B1"}, "exclude_item_ids: 'B1' is one string; give a list of item ids"),
        ({"history": ["a"], "exclude_item_ids": [7]}, "exclude_item_ids: 7 is no item id; give strings"),
        (
            {"history": ["a"], "where": IsIn("a", [1])},
            "where: IsIn(attribute='a', values=[1]) is one predicate; give a",
        ),
        ({"history": ["a"], "where": ["a=1"]}, "where[0]: 'a=1' is no predicate; give IsIn, NotIn or InRange"),
        ({"history": ["a"], "where": [IsIn(1, [2])]}, "where[0]: 1 is no attribute; give its name"),
        ({"history": ["a"], "where": [NotIn("a", "shoes")]}, "where[0]: 'shoes' is one string; give a list of values"),
        (
            {"history": ["a"], "where": [IsIn("a", [None])]},
            "where[0]: None is no value; give text, an integer, a number",
        ),
        ({"history": ["a"], "where": [IsIn("a", [2**63])]}, "where[0]: Value out of range: 9223372036854775808"),
        (
            {"history": ["a"], "where": [IsIn("b", [1]), InRange("a", above=1, at_least=2)]},
            "where[1]: both at_least and above are given; give one of them",
        ),
        ({"history": ["a"], "priority": "urgent"}, "priority: 'urgent'; give one of low, normal, high"),
        ({"history": ["a"], "cache": "off"}, "cache: 'off'; give one of use, refresh, bypass"),
        ({"history": ["a"], "search_mode": "fast"}, "search_mode: 'fast'; give one of beam, proven"),
        ({"history": ["a"], "number": 1}, 'Protocol message RecallRequest has no "number" field'),
    ],
    ids=[
        *("letters", "no string", "excluded letters", "excluded", "no list", "no predicate", "no name", "values"),
        *("no value", "too large", "two bounds", "priority"),
        *("cache", "search mode", "unknown"),
    ],
)
async def test_what_no_message_can_carry_is_refused(ask: Ask, question: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        await ask("127.0.0.1:1", **question)
    with pytest.raises(ValueError, match=re.escape(f"questions[1]: {message}")):
        await ask("127.0.0.1:1", "recall_batch", [{"history": ["a"]}, question])


async def test_a_request_too_large_for_the_server_is_not_sent(ask: Ask) -> None:
    """gRPC would refuse it with RESOURCE_EXHAUSTED, which is worth another try otherwise."""
    history = ["x" * 100] * 45_000
    async with running_replica(Replica()) as replica:
        with pytest.raises(ValueError, match=r"the request is 4,590,\d+ bytes, and may be 4,194,304; shorten"):
            await ask(replica.address, history=history)
        assert replica.came == []
        await ask(replica.address, history=history[:40_000])
        with pytest.raises(ValueError, match="and may be 1,000;"):
            await ask(replica.address, history=history[:10], client={"max_request_bytes": 1_000})
    assert len(replica.came) == 1


async def test_the_largest_answer_that_is_allowed_for_arrives(ask: Ask) -> None:
    """64 questions for 1,000 items each, by UUID, with the steps of four levels: more than gRPC takes by default."""
    item = recall_pb2.RecalledItem(
        item_id="0" * 36, score=-1.5, sid=[4095] * 4, step_log_probs=[-1.5] * 4, step_ranks=[70_000] * 4
    )
    result = recall_pb2.BatchRecallResult(response=recall_pb2.RecallResponse(items=[item] * 1_000))
    answer = recall_pb2.BatchRecallResponse(results=[result] * 64).SerializeToString()
    assert 5_700_000 < len(answer) < 5_900_000
    async with running_replica(Replica(answer=answer)) as replica:
        results = await ask(replica.address, "recall_batch", [{"history": ["a"]}])
    assert [len(result.items) for result in results] == [1_000] * 64


async def test_an_answer_of_another_contract_is_an_error(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):  # gRPC logs it
        async with running_replica(Replica(answer=b"\xff\xff")) as replica:
            with pytest.raises(RecallClientError) as caught:
                await ask(replica.address, history=["a"])
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert len(replica.came) == 1


@pytest.mark.parametrize(
    "details",
    [
        b"\xff\xff",
        Status(code=8, details=[AnyMessage(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")]),
        Status(code=8, details=[AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\x0a\x01")]),
    ],
    ids=["no status", "no ErrorInfo", "no RetryInfo"],
)
def test_details_that_nobody_can_read_leave_the_code(details: bytes | Status) -> None:
    error = RecallClientError.of_call(_failed_call(details))
    assert (error.code, error.reason, error.retry_after_seconds) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "", None)


def test_an_unreadable_detail_takes_no_other_with_it() -> None:
    status = status_of(Overloaded("full", retry_after_seconds=0.25), "r-1")
    status.details.add(type_url="type.googleapis.com/google.rpc.BadRequest", value=b"\xff")
    error = RecallClientError.of_call(_failed_call(status))
    assert (error.reason, error.request_id, error.retry_after_seconds) == ("OVERLOADED", "r-1", 0.25)


def test_a_time_beyond_all_clocks_is_a_number() -> None:
    status = Status(code=8)
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=2**62)))
    assert RecallClientError.of_call(_failed_call(status)).retry_after_seconds == 2.0**62


def _failed_call(details: bytes | Status) -> Any:
    """A call that failed with these, as gRPC raises it."""
    serialised = details if isinstance(details, bytes) else details.SerializeToString()
    message = "" if isinstance(details, bytes) else details.message
    trailers = (("grpc-status-details-bin", serialised),)
    return SimpleNamespace(
        code=lambda: grpc.StatusCode.RESOURCE_EXHAUSTED, details=lambda: message, trailing_metadata=lambda: trailers
    )


async def test_what_a_later_server_says_is_given_by_number(ask: Ask) -> None:
    response = recall_pb2.RecallResponse()
    response.served_from, response.score_space = 77, 78  # type: ignore[assignment]
    async with running_replica(Replica(answer=response.SerializeToString())) as replica:
        result = await ask(replica.address, history=["a"])
    assert (result.served_from, result.score_space, result.short_reason) == ("77", "78", "")


async def test_serving_info_tells_the_bundles(ask: Ask) -> None:
    async with running(FakeBackend()) as service:
        info = await ask(service.address, "serving_info")
    assert [bundle.name for bundle in info.bundles] == ["main", "small"]


async def test_serving_info_raises_as_recall_does(ask: Ask) -> None:
    with pytest.raises(RecallClientError, match="UNAVAILABLE"):
        await ask("127.0.0.1:1", "serving_info", client={"timeout": 2})
