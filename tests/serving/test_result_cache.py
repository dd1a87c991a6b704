"""The cache without Redis: tiers, modes, flights. What Redis may do to it is in test_redis_failures."""

import asyncio

import pytest

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
