"""An answer past its life serves on while it is computed anew, once, in the background."""

import asyncio
import contextvars
import time
from functools import partial
from unittest.mock import patch

import pytest
from redis.asyncio import Redis

from recall_service.engine.request import Priority
from recall_service.errors import EngineFailure, Overloaded
from recall_service.serving.cache import local_tier, redis_tier, refreshes, time_to_live
from recall_service.serving.cache.answer_codec import decode, encode
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import Compute, ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.query import CacheMode, RecallAnswer, RecallQuery, ServedFrom
from tests.redis_server import RedisServer
from tests.rpc.fake_backend import until
from tests.serving.cache_fakes import Computation, CountingObserver, eventually, make_answer
from tests.serving.conftest import PATIENT_SECONDS, CacheFactory
from tests.serving.fake_time import FakeTime
from tests.serving.served import HISTORY, Served

KEY = bytes(31) + b"\x03"
NAME = f"recall:test:{KEY.hex()}"
LIFE_SECONDS = 20.0
STALE_SECONDS = 60.0
BRIEF = TimeToLive(LIFE_SECONDS, 0.0, STALE_SECONDS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    """What the tiers go by, and nothing else: answers age only when told to, however long a test takes."""
    return FakeTime.of(monkeypatch, local_tier, redis_tier, time_to_live)


@pytest.fixture
def cache(make_cache: CacheFactory, clock: FakeTime) -> ResultCache:
    return make_cache(None, local_bytes=1 << 20, time_to_live=BRIEF)


class Held:
    """A computation that waits until it is let go."""

    def __init__(self, answer: RecallAnswer) -> None:
        self.runs = 0
        self.ended = 0
        self.let_go = asyncio.Event()
        self._answer = answer

    async def __call__(self) -> RecallAnswer:
        self.runs += 1
        try:
            await self.let_go.wait()
        finally:
            self.ended += 1
        return self._answer


class Failing:
    def __init__(self, error: Exception) -> None:
        self.runs = 0
        self._error = error

    async def __call__(self) -> RecallAnswer:
        self.runs += 1
        raise self._error


async def not_to_be_run() -> RecallAnswer:
    pytest.fail("no caller computes while there is a stale answer")


async def grow_stale(cache: ResultCache, clock: FakeTime, *keys: bytes) -> None:
    for key in keys or (KEY,):
        await cache.answer(key, CacheMode.USE, Computation(make_answer(beam_width=1)))
    await until(lambda: not cache._writes)  # or they might replace what the test puts into Redis next
    clock.wait(LIFE_SECONDS)


async def width(cache: ResultCache, recompute: Compute, key: bytes = KEY) -> int:
    """The beam width of the answer, by which tests know the old from the new."""
    return (await cache.answer(key, CacheMode.USE, not_to_be_run, recompute)).beam_width


async def test_is_served_at_once_while_one_computation_runs(
    cache: ResultCache, clock: FakeTime, observer: CountingObserver
) -> None:
    await grow_stale(cache, clock)
    newer = Held(make_answer(beam_width=2))
    assert await asyncio.gather(*(width(cache, newer) for _ in range(50))) == [1] * 50
    await asyncio.sleep(0)
    assert newer.runs == 1
    newer.let_go.set()
    await until(lambda: bool(observer.refreshes))
    assert await width(cache, newer) == 2
    assert newer.runs == 1
    assert (observer.requests["local", "stale"], observer.requests["local", "hit"]) == (50, 1)
    assert observer.refreshes == {"done": 1}


async def test_the_caller_that_found_it_stale_may_leave(
    cache: ResultCache, clock: FakeTime, observer: CountingObserver
) -> None:
    await grow_stale(cache, clock)
    newer = Held(make_answer(beam_width=2))
    caller = asyncio.create_task(width(cache, newer))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    newer.let_go.set()
    await until(lambda: bool(observer.refreshes))
    assert await width(cache, newer) == 2


async def test_it_is_no_part_of_the_callers_trace(cache: ResultCache, clock: FakeTime) -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")
    seen = []

    async def recompute() -> RecallAnswer:
        seen.append(trace.get())
        return make_answer()

    await grow_stale(cache, clock)
    trace.set("the caller's")
    await width(cache, recompute)
    await until(lambda: bool(seen))
    assert seen == ["none"]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (EngineFailure("a step failed"), "failed"),
        (Overloaded("full", retry_after_seconds=1.0), "dropped"),
        (LookupError("a fault of ours"), "failed"),
    ],
    ids=["engine", "overloaded", "unforeseen"],
)
async def test_a_failure_leaves_it_and_is_not_repeated_at_once(
    error: Exception,
    result: str,
    cache: ResultCache,
    clock: FakeTime,
    observer: CountingObserver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await grow_stale(cache, clock)
    failing = Failing(error)
    for _ in range(20):
        assert await width(cache, failing) == 1
        await asyncio.sleep(0.001)
    assert failing.runs == 1
    assert observer.refreshes == {result: 1}
    assert ("a stale answer could not be computed anew" in caplog.text) == isinstance(error, LookupError)


async def test_after_a_rest_it_is_tried_again(
    make_cache: CacheFactory, clock: FakeTime, observer: CountingObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshes, "_REST_SECONDS", 0.02)
    cache = make_cache(None, local_bytes=1 << 20, time_to_live=BRIEF)
    await grow_stale(cache, clock)
    await width(cache, Failing(EngineFailure("a step failed")))
    await until(lambda: observer.refreshes == {"failed": 1})  # its rest begins
    await asyncio.sleep(0.03)
    await width(cache, Computation(make_answer(beam_width=2)))
    await until(lambda: observer.refreshes == {"failed": 1, "done": 1})
    assert await width(cache, not_to_be_run) == 2


async def test_few_run_at_once(
    cache: ResultCache, clock: FakeTime, observer: CountingObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshes, "_MAX_AT_ONCE", 2)
    keys = [number.to_bytes(32, "big") for number in range(4)]
    await grow_stale(cache, clock, *keys)
    held = [Held(make_answer(beam_width=2)) for _ in keys]
    for key, newer in zip(keys, held, strict=True):
        assert await width(cache, newer, key) == 1
    await asyncio.sleep(0)
    assert [newer.runs for newer in held] == [1, 1, 0, 0]
    assert observer.refreshes == {"dropped": 2}


async def test_one_that_hangs_is_given_up(
    cache: ResultCache, clock: FakeTime, observer: CountingObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshes, "REFRESH_SECONDS", 0.02)
    await grow_stale(cache, clock)
    hanging = Held(make_answer())
    assert await width(cache, hanging) == 1
    await until(lambda: bool(observer.refreshes))
    assert hanging.ended == 1
    assert observer.refreshes == {"failed": 1}


async def test_closing_stops_them(cache: ResultCache, clock: FakeTime) -> None:
    await grow_stale(cache, clock)
    hanging = Held(make_answer())
    await width(cache, hanging)
    await asyncio.sleep(0)
    await cache.close()
    assert (hanging.runs, hanging.ended) == (1, 1)


async def test_too_old_is_a_miss(make_cache: CacheFactory, clock: FakeTime, computation: Computation) -> None:
    cache = make_cache(None, local_bytes=1 << 20, time_to_live=TimeToLive(20.0, 0.0, 20.0))
    await cache.answer(KEY, CacheMode.USE, computation)
    clock.wait(40.0)
    assert (await cache.answer(KEY, CacheMode.USE, computation)).served_from is ServedFrom.ENGINE
    assert computation.runs == 2


@pytest.mark.parametrize("mode", [CacheMode.REFRESH, CacheMode.BYPASS])
async def test_other_modes_neither_get_it_nor_have_it_computed_for_others(
    mode: CacheMode, cache: ResultCache, clock: FakeTime
) -> None:
    await grow_stale(cache, clock)
    newer, unused = Computation(make_answer(beam_width=2)), Computation()
    assert (await cache.answer(KEY, mode, newer, unused)).beam_width == 2
    await asyncio.sleep(0.01)
    assert (newer.runs, unused.runs) == (1, 0)


async def test_a_pipeline_computes_it_behind_everybody_else_and_in_a_time_of_its_own(
    served: Served, clock: FakeTime
) -> None:
    local = LocalTier(max_bytes=1 << 20, time_to_live=BRIEF, observer=served.observer)
    cache = ResultCache(local, None, served.observer)
    pipeline = Pipeline(served.registry, cache, served.observer)
    runner = served.live().runner
    query = RecallQuery(history=HISTORY, deadline=time.monotonic() + 5, priority=Priority.HIGH)
    with patch.object(runner, "search", wraps=runner.search) as search:
        first = await pipeline.recall(query, "feed")
        clock.wait(LIFE_SECONDS)
        stale = await pipeline.recall(query, "feed")

        async def is_done() -> bool:
            return ("cache_refresh", "done") in served.observer.calls

        await eventually(is_done)
        [asked_first, asked_again] = [call.args[0] for call in search.call_args_list]
    assert (first.served_from, stale.served_from) == (ServedFrom.ENGINE, ServedFrom.LOCAL_CACHE)
    assert stale.item_ids == first.item_ids
    assert (asked_first.priority, asked_again.priority) == (Priority.HIGH, Priority.LOW)
    assert asked_again.deadline > asked_first.deadline + 4
    assert len(served.observer.of("answered")) == 2  # of a question that nobody asked nothing is told
    await cache.close()


@pytest.mark.redis
class TestShared:
    """The stamp travels through Redis, by the writer's clock."""

    @pytest.fixture
    def make_cache(self, make_cache: CacheFactory) -> CacheFactory:
        return partial(make_cache, timeout_seconds=PATIENT_SECONDS)

    @staticmethod
    async def put(client: Redis, clock: FakeTime, seconds_left: float | None) -> None:
        stamp = 0 if seconds_left is None else round((clock.time() + seconds_left) * 1000)
        await client.set(NAME, encode(make_answer(beam_width=1), KEY, stamp))

    async def test_a_stale_answer_of_another_replica_is_served_and_replaced(
        self,
        make_cache: CacheFactory,
        clock: FakeTime,
        redis_server: RedisServer,
        redis_client: Redis,
        observer: CountingObserver,
    ) -> None:
        await self.put(redis_client, clock, -5.0)
        cache = make_cache(redis_server.url, time_to_live=TimeToLive(20.0, 0.0, STALE_SECONDS))
        assert await width(cache, Computation(make_answer(beam_width=2))) == 1

        async def is_replaced() -> bool:
            stored = decode(await redis_client.get(NAME), KEY)
            assert stored is not None
            fresh_for = stored.fresh_until_unix_ms - clock.time() * 1000
            return stored.answer.beam_width == 2 and 15_000 < fresh_for <= 20_000

        await eventually(is_replaced)
        assert 70_000 < await redis_client.pttl(NAME) <= 80_000
        assert await width(cache, not_to_be_run) == 2
        assert observer.requests["redis", "stale"] == 2  # by the caller, and by the computation before it began
        assert observer.refreshes == {"done": 1}

    async def test_what_another_replica_has_computed_anew_is_taken(
        self,
        make_cache: CacheFactory,
        clock: FakeTime,
        redis_server: RedisServer,
        redis_client: Redis,
        observer: CountingObserver,
    ) -> None:
        cache = make_cache(redis_server.url, local_bytes=1 << 20, time_to_live=BRIEF)
        await grow_stale(cache, clock)
        await redis_client.set(NAME, encode(make_answer(beam_width=2), KEY, round(clock.time() + 50) * 1000))
        assert await width(cache, not_to_be_run) == 1
        await until(lambda: observer.refreshes == {"done": 1})
        assert await width(cache, not_to_be_run) == 2

    async def test_who_serves_nothing_stale_computes(
        self,
        make_cache: CacheFactory,
        clock: FakeTime,
        redis_server: RedisServer,
        redis_client: Redis,
        observer: CountingObserver,
    ) -> None:
        await self.put(redis_client, clock, -0.5)
        newer = Computation(make_answer(beam_width=2))
        assert (await make_cache(redis_server.url).answer(KEY, CacheMode.USE, newer)).beam_width == 2
        assert observer.requests["redis", "miss"] == 1

    @pytest.mark.parametrize("seconds_left", [None, 50.0], ids=["no stamp", "in time"])
    async def test_a_fresh_answer_is_just_served(
        self,
        seconds_left: float | None,
        make_cache: CacheFactory,
        clock: FakeTime,
        redis_server: RedisServer,
        redis_client: Redis,
        observer: CountingObserver,
    ) -> None:
        await self.put(redis_client, clock, seconds_left)
        cache = make_cache(redis_server.url, time_to_live=TimeToLive(60.0, 0.0, STALE_SECONDS))
        assert await width(cache, not_to_be_run) == 1
        assert observer.requests["redis", "hit"] == 1
        assert observer.refreshes == {}

    async def test_a_clock_far_ahead_makes_an_answer_live_one_life_at_most(
        self, make_cache: CacheFactory, clock: FakeTime, redis_server: RedisServer, redis_client: Redis
    ) -> None:
        await self.put(redis_client, clock, 1e9)
        cache = make_cache(redis_server.url, local_bytes=1 << 20, time_to_live=BRIEF)
        assert await width(cache, not_to_be_run) == 1
        await redis_client.delete(NAME)
        clock.wait(LIFE_SECONDS)
        newer = Computation(make_answer(beam_width=2))
        assert await width(cache, newer) == 1
        await until(lambda: newer.runs > 0)
        assert newer.runs == 1

    async def test_what_is_left_of_its_life_is_all_it_lives_here(
        self,
        make_cache: CacheFactory,
        clock: FakeTime,
        redis_server: RedisServer,
        redis_client: Redis,
        computation: Computation,
    ) -> None:
        """Found in Redis late in its life, it does not begin another one."""
        await self.put(redis_client, clock, 20.0)
        cache = make_cache(redis_server.url, local_bytes=1 << 20)
        assert await width(cache, not_to_be_run) == 1
        await redis_client.delete(NAME)
        clock.wait(20.0)
        assert (await cache.answer(KEY, CacheMode.USE, computation)).served_from is ServedFrom.ENGINE
