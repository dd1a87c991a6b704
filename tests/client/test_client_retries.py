"""What is tried again, when, and how often: gRPC's own work, as the clients' policy sets it."""

import time

import grpc
import pytest

from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.errors import Overloaded
from tests.client.conftest import Ask
from tests.client.replica import BUSY, GONE, Refusal, Replica, running_replica
from tests.rpc.fake_backend import FakeBackend, running

Code = grpc.StatusCode
NEVER_AGAIN = [code for code in Code if code not in (Code.OK, Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)]


@pytest.mark.parametrize("refusal", [BUSY, GONE], ids=["busy", "gone"])
async def test_what_may_pass_is_tried_again(ask: Ask, refusal: Refusal) -> None:
    async with running_replica(Replica(lambda number: refusal if number < 2 else None)) as replica:
        result = await ask(replica.address, history=["a"])
    assert result.request_id == "answered"
    assert len(replica.came) == 3


@pytest.mark.parametrize("refusal", [BUSY, GONE], ids=["busy", "gone"])
async def test_the_third_attempt_is_the_last(ask: Ask, refusal: Refusal) -> None:
    async with running_replica(Replica(lambda _: refusal)) as replica:
        with pytest.raises(RecallClientError, match=refusal.code.name):
            await ask(replica.address, history=["a"])
    assert len(replica.came) == 3
    assert all(later - sooner > 0.03 for sooner, later in zip(replica.came, replica.came[1:], strict=False))


@pytest.mark.parametrize("code", NEVER_AGAIN, ids=lambda code: code.name)
async def test_nothing_else_is_tried_again(code: grpc.StatusCode) -> None:
    replica = Replica(lambda _: Refusal(code, "1"))
    async with running_replica(replica), AsyncRecallClient(replica.address) as client:
        with pytest.raises(RecallClientError, match=code.name):
            await client.recall(history=["a"])
    assert len(replica.came) == 1


async def test_a_batch_and_the_serving_info_are_tried_again_too(ask: Ask) -> None:
    async with running_replica(Replica(lambda number: BUSY if number % 2 == 0 else None, answer=b"")) as replica:
        assert await ask(replica.address, "recall_batch", [{"history": ["a"]}]) == []
        assert not (await ask(replica.address, "serving_info")).bundles
    assert len(replica.came) == 4


async def test_a_pushback_is_waited(ask: Ask) -> None:
    refusal = Refusal(Code.RESOURCE_EXHAUSTED, "400")
    async with running_replica(Replica(lambda number: refusal if number == 0 else None)) as replica:
        assert (await ask(replica.address, history=["a"])).request_id == "answered"
    first, second = replica.came
    assert 0.39 < second - first < 2  # the backoff alone would be 60 ms at most


@pytest.mark.parametrize("pushback", ["-1", "soon"])
async def test_a_pushback_that_is_no_time_ends_the_call(ask: Ask, pushback: str) -> None:
    async with running_replica(Replica(lambda _: Refusal(Code.RESOURCE_EXHAUSTED, pushback))) as replica:
        with pytest.raises(RecallClientError, match="RESOURCE_EXHAUSTED"):
            await ask(replica.address, history=["a"])
    assert len(replica.came) == 1


async def test_a_pushback_beyond_the_deadline_is_waited_for_in_vain() -> None:
    """What gRPC does, and why our servers send -1 then."""
    replica = Replica(lambda _: Refusal(Code.RESOURCE_EXHAUSTED, "60000"))
    async with running_replica(replica), AsyncRecallClient(replica.address) as client:
        with pytest.raises(RecallClientError, match="DEADLINE_EXCEEDED"):
            await client.recall(history=["a"], timeout=1)
    assert len(replica.came) == 1


async def test_a_server_of_ours_that_is_full_for_longer_than_the_call_lasts_says_so_at_once(ask: Ask) -> None:
    backend = FakeBackend(Overloaded("queue full", retry_after_seconds=60.0, limit="scene_limit"))
    async with running(backend) as service:
        started = time.perf_counter()
        with pytest.raises(RecallClientError, match="RESOURCE_EXHAUSTED: queue full") as caught:
            await ask(service.address, history=["a"], timeout=10)
    assert time.perf_counter() - started < 5
    assert (caught.value.reason, caught.value.limit) == ("OVERLOADED", "scene_limit")
    assert caught.value.retry_after_seconds == 60.0
    assert len(backend.queries) == 1


@pytest.mark.parametrize("seconds", [0.0, 0.02])
async def test_a_server_of_ours_that_is_full_for_a_moment_is_asked_again(ask: Ask, seconds: float) -> None:
    """With 0 s too: 0 ms on the wire would keep the client waiting until its deadline."""
    backend = FakeBackend(Overloaded("queue full", retry_after_seconds=seconds))
    async with running(backend) as service:
        with pytest.raises(RecallClientError, match="RESOURCE_EXHAUSTED: queue full"):
            await ask(service.address, history=["a"])
    assert len(backend.queries) == 3


async def test_the_budget_ends_repeating_and_successes_fill_it_again() -> None:
    refusal = Refusal(Code.RESOURCE_EXHAUSTED, "1")
    async with running_replica(Replica(lambda _: refusal)) as replica, AsyncRecallClient(replica.address) as client:
        for _ in range(200):
            with pytest.raises(RecallClientError):
                await client.recall(history=["a"])
        assert 220 <= len(replica.came) <= 250  # without a budget: 600

        replica.came.clear()
        for _ in range(50):
            with pytest.raises(RecallClientError):
                await client.recall(history=["a"])
        assert len(replica.came) == 50

        replica.ends = lambda _: None
        for _ in range(550):
            await client.recall(history=["a"])
        replica.came.clear()
        replica.ends = lambda number: refusal if number < 2 else None
        assert (await client.recall(history=["a"])).request_id == "answered"
        assert len(replica.came) == 3


async def test_a_large_request_is_tried_again_too() -> None:
    """gRPC by itself keeps no more than 256 KiB of a call for another attempt."""
    replica = Replica(lambda number: BUSY if number == 0 else None)
    async with running_replica(replica), AsyncRecallClient(replica.address) as client:
        await client.recall(prompt=[2**31] * 200_000)
    assert len(replica.came) == 2
