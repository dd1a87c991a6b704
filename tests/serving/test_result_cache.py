"""The cache without Redis: tiers, modes, flights. What Redis may do to it is in test_redis_failures."""

import asyncio

import pytest

from recall_service.errors import DeadlineExpired, Overloaded
from recall_service.serving.query import CacheMode, RecallAnswer, ServedFrom, ShortReason
from tests.serving.cache_fakes import Computation, CountingObserver, make_answer, stored_part
from tests.serving.conftest import CacheFactory

KEY = bytes(32)
LOCAL_BYTES = 1_000_000


async def test_the_second_question_is_answered_here(
    make_cache: CacheFactory, computation: Computation, observer: CountingObserver
) -> None:
    cache = make_cache(None, local_bytes=LOCAL_BYTES)
    first = await cache.answer(KEY, CacheMode.USE, computation)
    second = await cache.answer(KEY, CacheMode.USE, computation)
    assert first is computation.expected
    assert stored_part(second) == stored_part(first)
    assert second.served_from is ServedFrom.LOCAL_CACHE
    assert computation.runs == 1
    assert observer.requests == {("local", "miss"): 1, ("local", "hit"): 1}
    assert observer.stages == {"cache_get": 2, "cache_put": 1}


async def test_bypass_neither_looks_nor_stores(
    make_cache: CacheFactory, computation: Computation, observer: CountingObserver
) -> None:
    cache = make_cache(None, local_bytes=LOCAL_BYTES)
    for mode in (CacheMode.BYPASS, CacheMode.USE, CacheMode.BYPASS):
        assert await cache.answer(KEY, mode, computation) is computation.expected
    assert computation.runs == 3
    assert observer.requests == {("local", "bypass"): 2, ("local", "miss"): 1}


async def test_refresh_computes_and_stores_over_what_is_there(
    make_cache: CacheFactory, computation: Computation
) -> None:
    cache = make_cache(None, local_bytes=LOCAL_BYTES)
    await cache.answer(KEY, CacheMode.USE, computation)
    newer = Computation(make_answer(proven_count=5))
    assert await cache.answer(KEY, CacheMode.REFRESH, newer) is newer.expected
    assert (await cache.answer(KEY, CacheMode.USE, computation)).proven_count == 5


async def test_a_short_answer_is_given_but_never_kept(make_cache: CacheFactory) -> None:
    cache = make_cache(None, local_bytes=LOCAL_BYTES)
    short = Computation(make_answer(short_reason=ShortReason.CATALOG_EXHAUSTED))
    for mode in (CacheMode.USE, CacheMode.REFRESH, CacheMode.USE):
        assert await cache.answer(KEY, mode, short) is short.expected
    assert short.runs == 3


async def test_a_hundred_equal_questions_compute_once(make_cache: CacheFactory, observer: CountingObserver) -> None:
    cache = make_cache(None)
    runs = 0

    async def compute() -> RecallAnswer:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.01)
        return make_answer()

    answers = await asyncio.gather(*(cache.answer(KEY, CacheMode.USE, compute) for _ in range(100)))
    assert runs == 1
    assert {answer.served_from for answer in answers} == {ServedFrom.ENGINE}
    assert observer.coalesced == 99


async def test_an_error_is_the_callers_and_is_not_kept(make_cache: CacheFactory, computation: Computation) -> None:
    cache = make_cache(None, local_bytes=LOCAL_BYTES)

    async def fail() -> RecallAnswer:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await cache.answer(KEY, CacheMode.USE, fail)
    assert await cache.answer(KEY, CacheMode.USE, computation) is computation.expected


@pytest.mark.parametrize(
    ("error", "runs"),
    [
        (DeadlineExpired("decode"), 1),
        (Overloaded("too late", retry_after_seconds=1.0, limit="deadline"), 1),
        (Overloaded("full", retry_after_seconds=1.0), 50),
    ],
    ids=["expired", "refused for its deadline", "refused"],
)
async def test_two_leaders_and_fifty_followers(make_cache: CacheFactory, error: Exception, runs: int) -> None:
    """A leader's own short deadline says nothing of the others'; whatever else fails, they do not fail in a row."""
    cache = make_cache(None)
    num_patient = 0

    async def hurried() -> RecallAnswer:
        await asyncio.sleep(0.005)
        raise error

    async def patient() -> RecallAnswer:
        nonlocal num_patient
        num_patient += 1
        await asyncio.sleep(0.005)
        return make_answer()

    calls = (cache.answer(KEY, CacheMode.USE, compute) for compute in [hurried] * 2 + [patient] * 50)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes[:2] == [error] * 2
    assert all(isinstance(outcome, RecallAnswer) for outcome in outcomes[2:])
    assert num_patient == runs


async def test_lanes_do_not_wait_for_each_other_and_share_what_is_kept(
    make_cache: CacheFactory, computation: Computation
) -> None:
    cache = make_cache(None, local_bytes=LOCAL_BYTES)
    let_go = asyncio.Event()

    async def slow() -> RecallAnswer:
        await let_go.wait()
        return make_answer()

    leader = asyncio.create_task(cache.answer(KEY, CacheMode.USE, slow, lane=b"slow"))
    await asyncio.sleep(0)
    assert await cache.answer(KEY, CacheMode.USE, computation, seconds=1.0, lane=b"quick") is computation.expected
    kept = await cache.answer(KEY, CacheMode.USE, computation, lane=b"another")
    assert kept.served_from is ServedFrom.LOCAL_CACHE
    let_go.set()
    await leader
