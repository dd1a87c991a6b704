"""Both clients against a real server with a fake backend."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from recall_service.client import AsyncRecallClient, RecallClient, RecallClientError, RecalledItem, RecallResult
from recall_service.engine.request import SearchMode
from recall_service.errors import InvalidRequest, Overloaded, Violation
from recall_service.serving.query import CacheMode, RecallQuery
from tests.rpc.fake_backend import FakeBackend, running, until

Ask = Callable[..., Awaitable[RecallResult]]


async def ask_sync(address: str, **question: Any) -> RecallResult:
    def ask() -> RecallResult:
        with RecallClient(address) as client:
            return client.recall(**question)

    return await asyncio.to_thread(ask)


async def ask_async(address: str, **question: Any) -> RecallResult:
    async with AsyncRecallClient(address) as client:
        return await client.recall(**question)


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Asks one question with one of the clients."""
    asker: Ask = request.param
    return asker


async def test_every_argument_reaches_the_backend(ask: Ask) -> None:
    backend = FakeBackend()
    async with running(backend) as service:
        result = await ask(
            service.address,
            history=["x", "y"],
            bundle="main",
            num_items=2,
            beam_width=30,
            scene="feed",
            user_id="someone",
            request_id="r-7",
            search_mode="proven",
            cache="bypass",
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
        search_mode=SearchMode.PROVEN,
        cache_mode=CacheMode.BYPASS,
        include_steps=True,
        deadline=query.deadline,
    )
    assert result.request_id == "r-7"


async def test_the_result_holds_every_field_of_the_response(ask: Ask) -> None:
    async with running(FakeBackend()) as service:
        result = await ask(service.address, prompt=[1, 2, 3], num_items=1, request_id="r", include_steps=True)
    assert len(result.attribution_token) > 10
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
        rows_forwarded=61,
        rows_skipped=17,
        attribution_token=result.attribution_token,
        queue_seconds=pytest.approx(1e-6),
        prefill_seconds=pytest.approx(20e-6),
        decode_seconds=pytest.approx(300e-6),
        total_seconds=pytest.approx(4e-3),
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


async def test_overload_says_when_to_come_back(ask: Ask) -> None:
    async with running(FakeBackend(Overloaded("queue full", retry_after_seconds=0.75))) as service:
        with pytest.raises(RecallClientError, match="RESOURCE_EXHAUSTED: queue full") as caught:
            await ask(service.address, history=["a"])
    assert (caught.value.reason, caught.value.retry_after_seconds) == ("OVERLOADED", 0.75)
    assert service.observer.handled == [("Recall", "RESOURCE_EXHAUSTED")]  # and was not tried again


async def test_the_timeout_holds(ask: Ask) -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend) as service:
        with pytest.raises(RecallClientError) as caught:
            await ask(service.address, history=["a"], timeout=0.2)
        await until(lambda: backend.num_cancelled == 1)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "")


async def test_a_server_that_is_not_there_is_unavailable(ask: Ask, unused_tcp_port: int) -> None:
    with pytest.raises(RecallClientError) as caught:
        await ask(f"127.0.0.1:{unused_tcp_port}", history=["a"], timeout=5)
    assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.UNAVAILABLE, "")


async def test_a_replica_that_warms_up_gets_no_calls(ask: Ask) -> None:
    async with running(FakeBackend(), serving=False) as service:
        with pytest.raises(RecallClientError) as caught:
            await ask(service.address, history=["a"], timeout=2)
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert service.observer.started == []


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


async def test_serving_info_comes_with_both_clients() -> None:
    def ask() -> list[str]:
        with RecallClient(service.address) as client:
            return [bundle.name for bundle in client.serving_info().bundles]

    async with running(FakeBackend()) as service, AsyncRecallClient(service.address) as client:
        assert [bundle.name for bundle in (await client.serving_info()).bundles] == ["main", "small"]
        assert await asyncio.to_thread(ask) == ["main", "small"]


async def test_serving_info_raises_as_recall_does() -> None:
    def ask() -> None:
        with RecallClient("127.0.0.1:1", timeout=2) as client:
            client.serving_info()

    with pytest.raises(RecallClientError, match="UNAVAILABLE"):
        await asyncio.to_thread(ask)
    async with AsyncRecallClient("127.0.0.1:1", timeout=2) as client:
        with pytest.raises(RecallClientError, match="UNAVAILABLE"):
            await client.serving_info()
