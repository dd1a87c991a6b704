"""A Redis that fails over: the cache finds the new primary by itself; meanwhile every answer is right and in time."""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from redis.crc import key_slot
from redis.exceptions import ResponseError

from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.query import CacheMode, ServedFrom
from tests.redis_server import RedisServer, free_port
from tests.redis_topologies import SERVICE, VALKEY, Watched, cluster, watched
from tests.serving.cache_fakes import Computation, CountingObserver, eventually, make_answer, stored_part
from tests.serving.conftest import MOST_DELAY_SECONDS, CacheFactory
from tests.unpaused_clock import unpaused_clock

pytestmark = pytest.mark.redis


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path) as servers:
        yield servers


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    """Of a cluster of two, each with half of the slots."""
    with cluster(tmp_path_factory.mktemp("cluster"), [(0, 8191), (8192, 16383)]) as nodes:
        yield nodes


def key_of_slots(first: int, last: int) -> bytes:
    """A key whose slot is one of these."""
    keys = (number.to_bytes(32, "big") for number in range(100_000))
    return next(key for key in keys if first <= key_slot(f"recall:test:{key.hex()}".encode()) <= last)


HALVES = (key_of_slots(0, 8191), key_of_slots(8192, 16383))  # a key of each


def name_of(key: bytes) -> str:
    return f"recall:test:{key.hex()}"


async def is_shared(cache: ResultCache, key: bytes, computation: Computation) -> bool:
    """Whether the answer, which is right and in time in any case, came from Redis."""
    with unpaused_clock() as clock:
        started = clock()
        answer = await cache.answer(key, CacheMode.USE, computation)
        assert clock() - started < MOST_DELAY_SECONDS
    assert stored_part(answer) == stored_part(computation.expected)
    return answer.served_from is ServedFrom.SHARED_CACHE


async def test_sentinels_name_the_new_primary(
    servers: Watched, make_cache: CacheFactory, computation: Computation, observer: CountingObserver
) -> None:
    """The first Sentinel of the URL is dead all along. After the failover the replica serves what was cached before."""
    dead = f"127.0.0.1:{free_port()}"
    url = f"redis+sentinel://{dead},127.0.0.1:{servers.sentinel.port}/{SERVICE}"
    cache = make_cache(url, open_seconds=0.1)
    key, another = bytes(32), bytes(31) + b"\x01"
    await eventually(lambda: is_shared(cache, key, computation))
    await eventually(lambda: asyncio.to_thread(lambda: servers.replica.ask("EXISTS", name_of(key)) == 1))
    servers.primary.stop()
    died = time.monotonic()
    await eventually(lambda: is_shared(cache, key, computation), seconds=15)
    await eventually(lambda: is_shared(cache, another, computation))
    assert time.monotonic() - died < 10
    assert servers.replica.ask("EXISTS", name_of(another)) == 1
    assert observer.breaker[-1:] in ([], [False])


async def test_a_sentinel_is_asked_once_for_all_who_connect(
    servers: Watched, make_cache: CacheFactory, computation: Computation
) -> None:
    connected = servers.sentinel.ask("INFO", "STATS")["total_connections_received"]
    cache = make_cache(f"redis+sentinel://127.0.0.1:{servers.sentinel.port}/{SERVICE}", failures=1000)
    keys = [number.to_bytes(32, "big") for number in range(100)]
    await asyncio.gather(*(cache.answer(key, CacheMode.USE, computation) for key in keys))
    await eventually(lambda: is_shared(cache, keys[0], computation))
    assert int(servers.primary.ask("INFO", "CLIENTS")["connected_clients"]) > 8
    assert servers.sentinel.ask("INFO", "STATS")["total_connections_received"] - connected <= 2  # one is this test's


async def test_no_sentinel_answers(make_cache: CacheFactory, computation: Computation) -> None:
    cache = make_cache(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{SERVICE}")
    for _ in range(5):
        assert not await is_shared(cache, bytes(32), computation)


async def test_a_sentinel_that_knows_no_such_service(
    servers: Watched, make_cache: CacheFactory, computation: Computation
) -> None:
    cache = make_cache(f"redis+sentinel://127.0.0.1:{servers.sentinel.port}/nobody")
    assert not await is_shared(cache, bytes(32), computation)


async def test_a_primary_that_became_a_replica_is_left(
    servers: Watched, make_cache: CacheFactory, computation: Computation
) -> None:
    """Alive, it answers gets and refuses puts: the refusal makes the cache ask the Sentinel again."""
    cache = make_cache(f"redis+sentinel://127.0.0.1:{servers.sentinel.port}/{SERVICE}")
    await eventually(lambda: is_shared(cache, bytes(32), computation))
    await eventually(lambda: asyncio.to_thread(fails_over, servers.sentinel))

    async def new_answers_are_kept() -> bool:
        key = time.monotonic_ns().to_bytes(32, "big")
        await cache.answer(key, CacheMode.USE, computation)
        await asyncio.sleep(0.02)
        return bool(servers.replica.ask("ROLE")[0] == "master" and servers.replica.ask("EXISTS", name_of(key)))

    await eventually(new_answers_are_kept, seconds=15)


def fails_over(sentinel: RedisServer) -> bool:
    try:
        return bool(sentinel.ask("SENTINEL", "FAILOVER", SERVICE))
    except ResponseError:  # it has not yet heard from the replica
        return False


async def test_every_node_of_a_cluster_is_asked_for_its_own_keys(
    nodes: list[RedisServer], make_cache: CacheFactory, computation: Computation
) -> None:
    cache = make_cache(f"redis+cluster://127.0.0.1:{nodes[0].port}")
    for node, key in zip(nodes, HALVES, strict=True):
        await eventually(partial(is_shared, cache, key, computation))
        assert node.ask("KEYS", "*") == [name_of(key)]


async def test_a_slot_that_moved_is_found(
    nodes: list[RedisServer], make_cache: CacheFactory, computation: Computation
) -> None:
    cache, key = make_cache(f"redis+cluster://{addresses(nodes)}"), key_of_slots(100, 100)
    await eventually(partial(is_shared, cache, key, computation))
    nodes[0].ask("DEL", name_of(key))
    for node in nodes:
        node.ask("CLUSTER", "SETSLOT", 100, "NODE", nodes[1].ask("CLUSTER", "MYID"))
    assert not await is_shared(cache, key, computation)
    await eventually(partial(is_shared, cache, key, computation))
    assert nodes[1].ask("EXISTS", name_of(key)) == 1


async def test_a_frozen_node_costs_the_keys_of_others_nothing(
    nodes: list[RedisServer], make_cache: CacheFactory, computation: Computation
) -> None:
    """Every second question is for a node that hangs; the others are all answered, over the connections of before."""
    cache = make_cache(f"redis+cluster://{addresses(nodes)}", failures=1000)
    for key in HALVES:
        await eventually(partial(is_shared, cache, key, computation))
    connected = nodes[1].ask("INFO", "STATS")["total_connections_received"]
    nodes[0].freeze()
    shared = [await is_shared(cache, HALVES[turn % 2], computation) for turn in range(20)]
    nodes[0].thaw()
    assert shared == [False, True] * 10
    assert nodes[1].ask("INFO", "STATS")["total_connections_received"] - connected <= 2  # one is this test's


async def test_five_hundred_questions_at_once_wait_for_connections_of_a_cluster(
    nodes: list[RedisServer], make_cache: CacheFactory
) -> None:
    cache = make_cache(f"redis+cluster://{addresses(nodes)}", pool_size=8, failures=1000)
    for key in HALVES:
        await eventually(partial(is_shared, cache, key, Computation()))
    widths = range(1, 501)
    asking = (
        cache.answer(width.to_bytes(32, "little"), CacheMode.USE, Computation(make_answer(beam_width=width)))
        for width in widths
    )
    assert [answer.beam_width for answer in await asyncio.gather(*asking)] == list(widths)
    for node in nodes:
        assert 1 < int(node.ask("INFO", "CLIENTS")["connected_clients"]) <= 8 + 1  # and the one that asks


def addresses(nodes: list[RedisServer]) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in nodes)


async def test_a_replica_that_takes_over_is_found(
    tmp_path: Path, make_cache: CacheFactory, computation: Computation, observer: CountingObserver
) -> None:
    with cluster(tmp_path, [(0, 16383), None]) as (primary, replica):
        cache = make_cache(f"redis+cluster://{addresses([primary, replica])}", open_seconds=0.1)
        await eventually(lambda: is_shared(cache, bytes(32), computation))
        await eventually(lambda: asyncio.to_thread(lambda: replica.ask("DBSIZE") == 1))
        primary.stop()
        for _ in range(5):
            assert not await is_shared(cache, bytes(32), computation)
        replica.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        took_over = time.monotonic()
        await eventually(lambda: is_shared(cache, bytes(32), computation))
        assert time.monotonic() - took_over < 4
        assert observer.breaker[0]
        assert not observer.breaker[-1]


async def test_a_cluster_that_is_down_opens_the_breaker(
    tmp_path: Path, make_cache: CacheFactory, computation: Computation, observer: CountingObserver
) -> None:
    """One slot has no owner: the node refuses every key, at once, and need not be asked each time."""
    node = RedisServer(VALKEY, tmp_path, options=["--cluster-enabled", "yes", "--cluster-port", str(free_port())])
    node.start()
    node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16382)
    cache = make_cache(f"redis+cluster://127.0.0.1:{node.port}", failures=3)
    for _ in range(4):
        assert not await is_shared(cache, bytes(32), computation)
    assert observer.breaker == [True]
    node.stop()


async def test_a_server_that_is_no_cluster(
    own_redis_server: RedisServer, make_cache: CacheFactory, computation: Computation
) -> None:
    own_redis_server.start()
    cache = make_cache(f"redis+cluster://:hunter2@127.0.0.1:{own_redis_server.port}")
    for _ in range(4):
        assert not await is_shared(cache, bytes(32), computation)
