"""Whatever Redis does, the answer is the one without a cache, and it comes hardly later."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from recall_service.serving.answer_codec import FORMAT_VERSION, encode
from recall_service.serving.query import CacheMode, RecallAnswer, ServedFrom
from recall_service.serving.result_cache import ResultCache
from recall_service.stubs.recall.v1 import cache_pb2
from tests.redis_server import RedisServer, free_port
from tests.serving.cache_fakes import Computation, CountingObserver, eventually, make_answer, stored_part
from tests.serving.conftest import TIMEOUT_SECONDS, CacheFactory

pytestmark = pytest.mark.redis

KEY = bytes(31) + b"\x02"
NAME = f"recall:test:{KEY.hex()}"
MOST_DELAY_SECONDS = TIMEOUT_SECONDS + 0.15  # what two shared cores may add


async def ask(cache: ResultCache, computation: Computation) -> RecallAnswer:
    """The answer, within its bound, whatever happens to Redis."""
    started = time.perf_counter()
    answer = await cache.answer(KEY, CacheMode.USE, computation)
    assert time.perf_counter() - started < MOST_DELAY_SECONDS
    assert stored_part(answer) == stored_part(computation.expected)
    return answer


@asynccontextmanager
async def listening(reply: bytes) -> AsyncIterator[str]:
    """The URL of something that answers whatever it is sent with `reply`, or with nothing at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while reply and await reader.read(1024):
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_nothing_listens(make_cache: CacheFactory, computation: Computation, observer: CountingObserver) -> None:
    cache = make_cache(f"redis://127.0.0.1:{free_port()}", failures=4)
    for _ in range(6):
        assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    assert observer.breaker == [True]
    assert observer.requests["redis", "error"] < 6
    assert observer.requests["redis", "error"] + observer.requests["redis", "bypass"] == 6


@pytest.mark.parametrize(
    "reply",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$abc\r\n", b"*-5\r\n", b"\x00" * 100, b":1\r\n", b"$5\r\nhello\r\n"],
    ids=["hangs up", "http", "no length", "no array", "zeros", "an integer", "a foreign value"],
)
async def test_something_else_listens(reply: bytes, make_cache: CacheFactory, computation: Computation) -> None:
    async with listening(reply) as url:
        cache = make_cache(url)
        for _ in range(3):
            assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
        await cache.close()


async def test_frozen(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    """SIGSTOP: connections open, nothing answers. After the breaker opened, not even the budget is spent."""
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, failures=3)
    own_redis_server.freeze()
    for _ in range(4):
        await ask(cache, computation)
    assert observer.breaker == [True]
    started = time.perf_counter()
    await ask(cache, computation)
    assert time.perf_counter() - started < TIMEOUT_SECONDS
    own_redis_server.thaw()


async def test_frozen_with_five_hundred_asking(make_cache: CacheFactory, own_redis_server: RedisServer) -> None:
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, pool_size=4)
    own_redis_server.freeze()
    computation = Computation()
    started = time.perf_counter()
    await asyncio.gather(*(cache.answer(n.to_bytes(32, "big"), CacheMode.USE, computation) for n in range(500)))
    assert time.perf_counter() - started < MOST_DELAY_SECONDS + 0.5  # 500 tasks have to be run, too
    assert computation.runs == 500
    own_redis_server.thaw()


async def test_slow(
    make_cache: CacheFactory,
    redis_server: RedisServer,
    redis_client: Redis,
    computation: Computation,
    observer: CountingObserver,
) -> None:
    cache = make_cache(redis_server.url, failures=100)
    await ask(cache, computation)
    await eventually(lambda: redis_client.exists(NAME))
    await redis_client.client_pause(int(TIMEOUT_SECONDS * 2000))
    assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    assert observer.requests["redis", "error"] == 1
    await asyncio.sleep(TIMEOUT_SECONDS * 2)
    assert (await ask(cache, computation)).served_from is ServedFrom.SHARED_CACHE


async def test_cancelled_mid_get(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    own_redis_server.start()
    cache = make_cache(own_redis_server.url)
    await ask(cache, computation)
    await asyncio.sleep(0.05)
    own_redis_server.freeze()
    task = asyncio.create_task(cache.answer(KEY, CacheMode.USE, computation))
    await asyncio.sleep(TIMEOUT_SECONDS / 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    own_redis_server.thaw()
    assert (await ask(cache, computation)).served_from is ServedFrom.SHARED_CACHE
    assert observer.breaker == []


async def test_restarted(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, failures=1, open_seconds=0.05)
    await ask(cache, computation)
    own_redis_server.stop()
    assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    own_redis_server.start()

    async def answers_again() -> bool:
        return (await cache.answer(KEY, CacheMode.USE, computation)).served_from is ServedFrom.SHARED_CACHE

    await eventually(answers_again)
    assert observer.breaker[:2] == [True, False]


@pytest.mark.parametrize("password", ["", ":wrong@"], ids=["none", "wrong"])
async def test_refuses_the_password(
    password: str,
    make_cache: CacheFactory,
    own_redis_server: RedisServer,
    computation: Computation,
    observer: CountingObserver,
) -> None:
    own_redis_server.start()
    cache = make_cache(f"redis://{password}127.0.0.1:{own_redis_server.port}")
    for _ in range(4):
        assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    assert observer.breaker == [True]


async def test_full(
    make_cache: CacheFactory,
    redis_server: RedisServer,
    redis_client: Redis,
    computation: Computation,
    observer: CountingObserver,
) -> None:
    """An error reply comes fast and from a live server: no cause for the breaker."""
    await redis_client.config_set("maxmemory", "1")
    cache = make_cache(redis_server.url, failures=2)
    for _ in range(5):
        assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    await cache.close()
    assert observer.requests["redis", "miss"] == 5
    assert observer.breaker == []


def older_version(answer: RecallAnswer) -> bytes:
    envelope = cache_pb2.CachedAnswer.FromString(encode(answer, KEY))
    envelope.format_version = FORMAT_VERSION - 1
    return envelope.SerializeToString()


POISONS: dict[str, Callable[[Redis], Awaitable[object]]] = {
    "garbage": lambda client: client.set(NAME, b"\xff" * 1000),
    "nothing": lambda client: client.set(NAME, b""),
    "older version": lambda client: client.set(NAME, older_version(make_answer(proven_count=0))),
    "another question's answer": lambda client: client.set(NAME, encode(make_answer(proven_count=0), bytes(32))),
    "a list": lambda client: client.rpush(NAME, "a"),
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS.keys())
async def test_something_else_under_the_key(
    poison: Callable[[Redis], Awaitable[object]],
    make_cache: CacheFactory,
    redis_server: RedisServer,
    redis_client: Redis,
    computation: Computation,
) -> None:
    """It is a miss, and the answer then takes its place."""
    await poison(redis_client)
    cache = make_cache(redis_server.url)
    assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    await cache.close()
    assert await redis_client.get(NAME) == encode(computation.expected, KEY)
