"""The cache with a Redis that is well."""

import asyncio
import time
from functools import partial

import pytest
from redis.asyncio import Redis

from recall_service.serving.cache.answer_codec import decode, encode
from recall_service.serving.query import CacheMode, ServedFrom, ShortReason
from tests.redis_server import RedisServer
from tests.serving.cache_fakes import Computation, CountingObserver, eventually, make_answer, stored_part
from tests.serving.conftest import PATIENT_SECONDS, CacheFactory

pytestmark = pytest.mark.redis

KEY = bytes(31) + b"\x01"
NAME = f"recall:test:{KEY.hex()}"


@pytest.fixture
def make_cache(make_cache: CacheFactory) -> CacheFactory:
    return partial(make_cache, timeout_seconds=PATIENT_SECONDS)


async def test_a_replica_is_answered_by_what_another_computed(
    make_cache: CacheFactory,
    redis_server: RedisServer,
    redis_client: Redis,
    computation: Computation,
    observer: CountingObserver,
) -> None:
    writer, reader = (make_cache(redis_server.url, local_bytes=1_000_000) for _ in range(2))
    await writer.answer(KEY, CacheMode.USE, computation)
    await eventually(lambda: redis_client.exists(NAME))
    shared = await reader.answer(KEY, CacheMode.USE, computation)
    local = await reader.answer(KEY, CacheMode.USE, computation)
    assert (shared.served_from, local.served_from) == (ServedFrom.SHARED_CACHE, ServedFrom.LOCAL_CACHE)
    assert stored_part(shared) == stored_part(local) == stored_part(computation.expected)
    assert computation.runs == 1
    assert observer.requests["redis", "hit"] == observer.requests["redis", "miss"] == 1


async def test_an_entry_expires_within_its_life(
    make_cache: CacheFactory, redis_server: RedisServer, redis_client: Redis, computation: Computation
) -> None:
    await make_cache(redis_server.url).answer(KEY, CacheMode.USE, computation)
    await eventually(lambda: redis_client.exists(NAME))
    assert 50_000 < await redis_client.pttl(NAME) <= 60_000


async def test_closing_lets_writes_end(
    make_cache: CacheFactory, redis_server: RedisServer, redis_client: Redis, computation: Computation
) -> None:
    cache = make_cache(redis_server.url)
    await cache.answer(KEY, CacheMode.USE, computation)
    await cache.close()
    stored = decode(await redis_client.get(NAME), KEY)
    assert stored is not None
    assert stored_part(stored.answer) == stored_part(computation.expected)
    assert 50_000 < stored.fresh_until_unix_ms - time.time() * 1000 <= 60_000


async def test_a_short_answer_is_never_written(
    make_cache: CacheFactory, redis_server: RedisServer, redis_client: Redis
) -> None:
    cache = make_cache(redis_server.url)
    short = Computation(make_answer(short_reason=ShortReason.BEAM_TOO_NARROW))
    for mode in CacheMode:
        await cache.answer(KEY, mode, short)
    await cache.close()
    assert await redis_client.dbsize() == 0


async def test_five_hundred_questions_at_once_fit_a_pool_of_eight(
    make_cache: CacheFactory, redis_server: RedisServer
) -> None:
    """The pool makes them wait, for no longer than their budget; it never raises "Too many connections"."""
    cache = make_cache(redis_server.url, failures=1000)
    computations = [Computation(make_answer(beam_width=width)) for width in range(1, 501)]
    answers = await asyncio.gather(
        *(cache.answer(width.to_bytes(32, "little"), CacheMode.USE, c) for width, c in enumerate(computations))
    )
    assert [answer.beam_width for answer in answers] == list(range(1, 501))


async def test_cancelled_questions_cross_no_replies_and_cost_no_connections(
    make_cache: CacheFactory, redis_server: RedisServer, redis_client: Redis
) -> None:
    cache = make_cache(redis_server.url, pool_size=2, failures=1000)
    keys = [number.to_bytes(32, "big") for number in range(100)]
    for number, key in enumerate(keys):
        await redis_client.set(f"recall:test:{key.hex()}", encode(make_answer(beam_width=number + 1), key))
    unused = Computation()
    before = (await redis_client.info("stats"))["total_connections_received"]
    for delay in (0.0, 0.0005, 0.001, 0.002, 0.004):
        tasks = [asyncio.create_task(cache.answer(key, CacheMode.USE, unused)) for key in keys]
        await asyncio.sleep(delay)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.1)
    for number, key in enumerate(keys):
        answer = await cache.answer(key, CacheMode.USE, unused)
        assert (answer.beam_width, answer.served_from) == (number + 1, ServedFrom.SHARED_CACHE)
    assert (await redis_client.info("stats"))["total_connections_received"] - before <= 2


async def test_a_password_in_the_url_is_used(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation
) -> None:
    own_redis_server.start()
    await (writer := make_cache(own_redis_server.url)).answer(KEY, CacheMode.USE, computation)
    await writer.close()
    answer = await make_cache(own_redis_server.url).answer(KEY, CacheMode.USE, computation)
    assert answer.served_from is ServedFrom.SHARED_CACHE
