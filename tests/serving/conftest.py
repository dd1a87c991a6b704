"""Caches on top of real Redis servers, bundles over stores, and the observers that listen to them."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from item_catalog.updating.store import CatalogStore
from recall_service.serving.cache.breaker import Breaker
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.redis_tier import RedisTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from tests.engine.driving import assert_all_free
from tests.redis_server import RedisServer, find_servers
from tests.serving.bundles import write_bundle
from tests.serving.cache_fakes import Computation, CountingObserver
from tests.serving.served import Served
from tests.serving.stores import NEW, OLD, Operated, write_store_bundle

TIMEOUT_SECONDS = 0.05  # generous beside the service's 20 ms: two shared cores run these tests
MOST_DELAY_SECONDS = TIMEOUT_SECONDS + 0.15  # of one question: what two shared cores may add
PATIENT_SECONDS = 2.0  # the timeout where Redis is well: no pause of the machine may look like one that hangs
TIME_TO_LIVE = TimeToLive(60.0, 0.1)


@pytest.fixture
def observer() -> CountingObserver:
    return CountingObserver()


@pytest.fixture
def computation() -> Computation:
    return Computation()


CacheFactory = Callable[..., ResultCache]


@pytest.fixture
async def make_cache(observer: CountingObserver) -> AsyncIterator[CacheFactory]:
    """Caches without a local tier unless asked for, so that Redis is seen; each is closed in the end."""
    caches = []

    def make(
        url: str | None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        local_bytes: int = 0,
        pool_size: int = 8,
        failures: int = 3,
        open_seconds: float = 60.0,
        time_to_live: TimeToLive = TIME_TO_LIVE,
    ) -> ResultCache:
        redis = None
        if url is not None:
            redis = RedisTier(
                url,
                timeout_seconds=timeout_seconds,
                pool_size=pool_size,
                key_prefix="recall:test:",
                time_to_live=time_to_live,
                breaker=Breaker(failures=failures, open_seconds=open_seconds, observer=observer),
                observer=observer,
            )
        local = LocalTier(max_bytes=local_bytes, time_to_live=time_to_live, observer=observer)
        caches.append(ResultCache(local, redis, observer))
        return caches[-1]

    yield make
    for cache in caches:
        await cache.close()


@pytest.fixture(scope="session", params=find_servers().items(), ids=lambda server: server[0])
def redis_binary(request: pytest.FixtureRequest) -> str:
    return str(request.param[1])


@pytest.fixture(scope="session")
def shared_redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(redis_binary, tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def redis_server(shared_redis_server: RedisServer) -> RedisServer:
    """A server that runs and is empty, shared by tests that leave it running."""
    async with Redis.from_url(shared_redis_server.url) as client:
        await client.config_set("maxmemory", "0")
        await client.flushall()
    return shared_redis_server


@pytest.fixture
async def redis_client(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """What a test sees of the server behind the cache's back."""
    async with Redis.from_url(redis_server.url) as client:
        yield client


@pytest.fixture
def own_redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server with a password that the test starts, stops and freezes as it likes."""
    server = RedisServer(redis_binary, tmp_path_factory.mktemp("redis"), password="hunter2")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two bundles of different models and items; only the second serves an empty history."""
    root = tmp_path_factory.mktemp("bundles")
    other = {"bundle": {"name": "other"}, "prompt": {"empty_history": "serve"}, "search": {"score_space": "CATALOG"}}
    return [write_bundle(root / "tiny"), write_bundle(root / "other", seed=5, first_item=100, **other)]


@pytest.fixture
def served(directories: list[Path]) -> Iterator[Served]:
    served = Served(*directories)
    yield served
    served.registry.close()
    for live in served.registry:
        assert_all_free(live.runner.engine)


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    """Holds OLD, which is current, and NEW."""
    return write_store_bundle(tmp_path / "tiny", OLD, NEW)


@pytest.fixture
async def operated(store: CatalogStore, tmp_path: Path) -> AsyncIterator[Operated]:
    """Serves the store, whose bundle lies in tmp_path / "tiny"."""
    operated = Operated(tmp_path / "tiny")
    yield operated
    await operated.close()
