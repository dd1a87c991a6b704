"""Whatever Redis does, the answer is the one without a cache, and it comes hardly later."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from redis.asyncio import Redis

from recall_service.errors import DeadlineExpired
from recall_service.serving.cache import redis_tier
from recall_service.serving.cache.answer_codec import FORMAT_VERSION, decode, encode
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.query import CacheMode, RecallAnswer, ServedFrom
from recall_service.stubs.recall.v1 import cache_pb2
from tests.redis_server import RedisServer, free_port
from tests.serving.cache_fakes import Computation, CountingObserver, eventually, make_answer, stored_part
from tests.serving.conftest import MOST_DELAY_SECONDS, PATIENT_SECONDS, TIMEOUT_SECONDS, CacheFactory
from tests.slow_proxy import black_hole, slow_proxy
from tests.unpaused_clock import unpaused_clock

pytestmark = pytest.mark.redis

KEY = bytes(31) + b"\x02"
NAME = f"recall:test:{KEY.hex()}"


async def ask(cache: ResultCache, computation: Computation, within: float = MOST_DELAY_SECONDS) -> RecallAnswer:
    """The answer, within its bound, whatever happens to Redis."""
    with unpaused_clock() as clock:
        started = clock()
        answer = await cache.answer(KEY, CacheMode.USE, computation)
        assert clock() - started < within
    assert stored_part(answer) == stored_part(computation.expected)
    return answer


async def is_shared(cache: ResultCache, computation: Computation) -> bool:
    return (await ask(cache, computation)).served_from is ServedFrom.SHARED_CACHE


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


@pytest.mark.parametrize(
    "url", ["redis://{}", "redis+sentinel://{}/answers", "redis+cluster://{}"], ids=["server", "sentinel", "cluster"]
)
async def test_nothing_is_tried_twice(url: str, make_cache: CacheFactory, computation: Computation) -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        cache = make_cache(url.format(f"127.0.0.1:{server.sockets[0].getsockname()[1]}"), failures=1)
        assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
        await asyncio.sleep(0.3)
        assert connections == 1


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
    await ask(cache, computation, within=TIMEOUT_SECONDS)
    own_redis_server.thaw()


async def test_a_get_ends_with_its_budget(make_cache: CacheFactory, own_redis_server: RedisServer) -> None:
    """Not with the longer ones of puts and sockets. Half of the questions: others run on these cores as well."""
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, failures=1000)
    own_redis_server.freeze()
    seconds = []
    for number in range(9):
        started = time.perf_counter()
        await cache.answer(number.to_bytes(32, "big"), CacheMode.USE, Computation())
        seconds.append(time.perf_counter() - started)
    own_redis_server.thaw()
    assert TIMEOUT_SECONDS * 0.9 < sorted(seconds)[4] < TIMEOUT_SECONDS * 2


async def test_frozen_with_five_hundred_asking(make_cache: CacheFactory, own_redis_server: RedisServer) -> None:
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, pool_size=4)
    own_redis_server.freeze()
    computation = Computation()
    with unpaused_clock() as clock:
        started = clock()
        await asyncio.gather(*(cache.answer(n.to_bytes(32, "big"), CacheMode.USE, computation) for n in range(500)))
        assert clock() - started < MOST_DELAY_SECONDS + 0.5  # 500 tasks have to be run, too
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
    errors = observer.requests["redis", "error"]
    await redis_client.client_pause(1_000)  # so long that no pause of the machine outlasts it
    assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    assert observer.requests["redis", "error"] == errors + 1
    await eventually(lambda: is_shared(cache, computation))


async def test_slow_by_200_ms(
    make_cache: CacheFactory, redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    """The breaker spares most questions even the budget, and closes by itself once Redis is quick again."""
    async with slow_proxy(redis_server.port) as proxy:
        cache = make_cache(f"redis://127.0.0.1:{proxy.port}", failures=3, open_seconds=0.3)
        await eventually(lambda: is_shared(cache, computation))
        proxy.delay_seconds = 0.2
        started = time.perf_counter()
        for _ in range(100):
            assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
        assert time.perf_counter() - started < 0.2 * 10
        assert observer.breaker == [True]
        proxy.delay_seconds = 0.0
        await eventually(lambda: is_shared(cache, computation))
        assert observer.breaker == [True, False]
        await cache.close()


async def test_black_hole_with_five_hundred_asking(make_cache: CacheFactory) -> None:
    """Nobody even accepts: each question is late by the budget, not by the sum of what fifty connections wait."""
    with black_hole() as port:
        cache = make_cache(f"redis://127.0.0.1:{port}", pool_size=50, failures=1000)
        computation = Computation()
        seconds: list[float] = []

        async def ask_one(number: int) -> None:
            started = time.perf_counter()
            await cache.answer(number.to_bytes(32, "big"), CacheMode.USE, computation)
            seconds.append(time.perf_counter() - started)

        await asyncio.gather(*(ask_one(number) for number in range(500)))
        assert computation.runs == 500
        assert sorted(seconds)[494] < MOST_DELAY_SECONDS + 0.5  # 500 tasks have to be run, too
        await cache.close()


async def test_past_a_bound_of_commands_under_way_redis_is_not_asked(
    make_cache: CacheFactory, own_redis_server: RedisServer, observer: CountingObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_tier, "_MAX_PENDING_COMMANDS", 10)
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, failures=1000)
    own_redis_server.freeze()
    computation = Computation()
    await asyncio.gather(*(cache.answer(n.to_bytes(32, "big"), CacheMode.USE, computation) for n in range(25)))
    own_redis_server.thaw()
    assert computation.runs == 25
    assert (observer.requests["redis", "error"], observer.requests["redis", "bypass"]) == (10, 15)


async def test_killed_while_many_ask(make_cache: CacheFactory, own_redis_server: RedisServer) -> None:
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, failures=5)
    computation = Computation()
    seconds: list[float] = []

    async def ask_on(number: int) -> None:
        for turn in range(5):
            started = clock()
            answer = await cache.answer((number % 20 * 10 + turn).to_bytes(32, "big"), CacheMode.USE, computation)
            seconds.append(clock() - started)
            assert stored_part(answer) == stored_part(computation.expected)

    with unpaused_clock() as clock:  # one pause would make a hundred late at once
        asking = asyncio.gather(*(ask_on(number) for number in range(100)))
        await asyncio.sleep(0.01)
        await asyncio.to_thread(own_redis_server.stop)
        await asking
    assert sorted(seconds)[len(seconds) * 9 // 10] < MOST_DELAY_SECONDS


async def test_read_only_replica(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    """What it holds is served; what it refuses to take is no cause for the breaker."""
    own_redis_server.start()
    own_redis_server.ask("SET", NAME, encode(computation.expected, KEY))
    own_redis_server.ask("REPLICAOF", "127.0.0.1", free_port())
    cache = make_cache(own_redis_server.url, failures=2, timeout_seconds=PATIENT_SECONDS)
    for _ in range(3):
        assert (await ask(cache, computation)).served_from is ServedFrom.SHARED_CACHE
    for number in range(5):
        await cache.answer(number.to_bytes(32, "big"), CacheMode.USE, computation)
    await cache.close()
    assert own_redis_server.ask("DBSIZE") == 1
    assert observer.breaker == []


async def test_cancelled_mid_get(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, timeout_seconds=PATIENT_SECONDS)
    await ask(cache, computation)
    await eventually(lambda: asyncio.to_thread(lambda: own_redis_server.ask("EXISTS", NAME) == 1))
    own_redis_server.freeze()
    task = asyncio.create_task(cache.answer(KEY, CacheMode.USE, computation))
    await asyncio.sleep(TIMEOUT_SECONDS / 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    own_redis_server.thaw()
    assert (await ask(cache, computation)).served_from is ServedFrom.SHARED_CACHE
    assert observer.breaker == []


async def test_callers_that_leave_before_the_budget_has_passed(
    make_cache: CacheFactory, own_redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    """A frozen Redis opens the breaker though nobody waits long enough to see it fail."""
    own_redis_server.start()
    cache = make_cache(own_redis_server.url, failures=3)
    own_redis_server.freeze()

    async def has_opened() -> bool:
        with suppress(TimeoutError):
            await cache.answer(KEY, CacheMode.USE, computation, seconds=TIMEOUT_SECONDS * 0.3)
        return observer.breaker == [True]

    await eventually(has_opened)
    assert observer.requests["redis", "error"] == 0
    own_redis_server.thaw()


async def test_who_takes_over_from_a_leader_does_not_ask_again(
    make_cache: CacheFactory, redis_server: RedisServer, computation: Computation, observer: CountingObserver
) -> None:
    cache = make_cache(redis_server.url, timeout_seconds=PATIENT_SECONDS)

    async def hurried() -> RecallAnswer:
        raise DeadlineExpired("queue")

    calls = (cache.answer(KEY, CacheMode.USE, compute) for compute in (hurried, computation, computation))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(outcomes[0], DeadlineExpired)
    assert outcomes[1:] == [computation.expected] * 2
    assert observer.requests["redis", "miss"] == 1


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
    cache = make_cache(redis_server.url, failures=2, timeout_seconds=PATIENT_SECONDS)
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
    cache = make_cache(redis_server.url, timeout_seconds=PATIENT_SECONDS)
    assert (await ask(cache, computation)).served_from is ServedFrom.ENGINE
    await cache.close()
    stored = decode(await redis_client.get(NAME), KEY)
    assert stored is not None
    assert stored_part(stored.answer) == stored_part(computation.expected)
