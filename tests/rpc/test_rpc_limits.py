"""How many questions of one client and of one scene may be under way at once."""

import asyncio
from contextlib import ExitStack

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.errors import Overloaded
from recall_service.rpc.authentication import Authentication
from recall_service.rpc.limits import Limits
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.tokens import make_token
from tests.rpc.fake_backend import FakeBackend, RememberingObserver, by_history, running, until

RANKER, MAILER = make_token("ranker", "recall"), make_token("mailer", "recall")


def test_the_named_have_their_own_number_and_each_other_client_that_of_the_star() -> None:
    limits = Limits({"ranker": 3, "*": 1})
    with ExitStack() as inside:
        for client in ("ranker", "ranker", "ranker", "a", "b", ""):
            inside.enter_context(limits.enter(client, "feed"))
        for client in ("ranker", "a", "b", ""):
            with pytest.raises(Overloaded, match="as many as may be"), limits.enter(client, "feed"):
                pytest.fail("let in")
    assert limits.num_counters == 0
    with limits.enter("a", "feed"):
        assert limits.num_counters == 1


def test_a_client_without_a_number_and_a_scene_without_one_have_no_limit() -> None:
    limits = Limits({"ranker": 1}, {"mail": 1})
    with ExitStack() as inside:
        for _ in range(100):
            inside.enter_context(limits.enter("another", "feed"))
        assert limits.num_counters == 0


def test_a_full_scene_counts_nothing_for_the_client_it_refuses() -> None:
    limits = Limits({"*": 2}, {"mail": 1})
    with limits.enter("a", "mail"):
        for _ in range(5):
            with pytest.raises(Overloaded, match="scene 'mail': 1 questions") as caught, limits.enter("b", "mail"):
                pytest.fail("let in")
            assert caught.value.limit == "scene_limit"
        with limits.enter("b", "feed"), limits.enter("b", "feed"):
            pass


def test_an_exception_inside_counts_out() -> None:
    limits = Limits({"*": 1})
    with pytest.raises(ValueError, match="inside"), limits.enter("a", "feed"):
        raise ValueError("inside")
    assert limits.num_counters == 0


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 0.05), (0.5, 0.1), (0.999999, 0.2)])
def test_the_refused_do_not_come_back_as_one(chance: float, seconds: float) -> None:
    limits = Limits({"*": 1}, chance=lambda: chance)
    with (
        limits.enter("", "feed"),
        pytest.raises(Overloaded, match="without a name") as caught,
        limits.enter("", "feed"),
    ):
        pass
    assert caught.value.retry_after_seconds == pytest.approx(seconds, rel=1e-3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["feed", "mail"]), st.booleans()), max_size=60))
@settings(max_examples=60)
def test_it_agrees_with_counting_by_hand(moves: list[tuple[str, str, bool]]) -> None:
    """Whoever enters and leaves in whatever order: inside is exactly who a list of those inside would let in."""
    limits = Limits({"a": 2, "*": 1}, {"mail": 2})
    inside: list[tuple[str, str, ExitStack]] = []
    for client, scene, comes in moves:
        if not comes:
            if inside:
                inside.pop(0)[2].close()
            continue
        fits = sum(client == other for other, _, _ in inside) < (2 if client == "a" else 1)
        fits &= scene != "mail" or sum(other == "mail" for _, other, _ in inside) < 2
        stack = ExitStack()
        try:
            stack.enter_context(limits.enter(client, scene))
        except Overloaded:
            assert not fits
        else:
            assert fits
            inside.append((client, scene, stack))
    for _, _, stack in inside:
        stack.close()
    assert limits.num_counters == 0


async def test_a_client_at_its_limit_is_told_and_another_is_not_touched() -> None:
    backend = FakeBackend(gate=asyncio.Event())
    observer = RememberingObserver()
    limits = Limits({"ranker": 2}, observer=observer)
    authentication = Authentication([RANKER.entry, MAILER.entry])
    async with running(backend, authentication=authentication, limits=limits) as service:

        def ask(token: str) -> grpc.aio.UnaryUnaryCall[recall_pb2.RecallRequest, recall_pb2.RecallResponse]:
            return service.stub.Recall(by_history(), metadata=(("authorization", f"Bearer {token}"),), timeout=10)

        inside = [ask(RANKER.token), ask(RANKER.token)]
        await until(lambda: len(backend.queries) == 2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(RANKER.token)
        inside.append(ask(MAILER.token))
        await until(lambda: len(backend.queries) == 3)
        assert backend.gate is not None
        backend.gate.set()
        await asyncio.gather(*inside)
        await ask(RANKER.token)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    status = rpc_status.from_call(caught.value)
    assert any(detail.Is(RetryInfo.DESCRIPTOR) for detail in status.details)
    assert "client_limit" in str(status)
    assert observer.rejections == ["client_limit"]
    assert limits.num_counters == 0


async def test_entries_of_a_batch_count_one_by_one_and_are_refused_alone() -> None:
    backend = FakeBackend()
    observer = RememberingObserver()
    async with running(backend, limits=Limits(scenes={"mail": 2}, observer=observer)) as service:
        entries = [by_history(scene=scene) for scene in ("mail", "mail", "mail", "feed")]
        backend.gate = asyncio.Event()
        call = service.stub.BatchRecall(recall_pb2.BatchRecallRequest(requests=entries))
        await until(lambda: len(backend.queries) == 3)
        backend.gate.set()
        results = (await call).results
    outcomes = [result.failure.reason or "answered" for result in results]
    assert outcomes == ["answered", "answered", "OVERLOADED", "answered"]
    assert results[2].failure.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert observer.rejections == ["scene_limit"]
    assert service.observer.handled == [("BatchRecall", "OK")]


async def test_a_cancelled_question_gives_its_place_back() -> None:
    limits = Limits({"*": 1})
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend, limits=limits) as service:
        call = service.stub.Recall(by_history())
        await backend.entered.wait()
        call.cancel()
        await until(lambda: limits.num_counters == 0)
        assert backend.gate is not None
        backend.gate.set()
        await service.stub.Recall(by_history())
