"""What a Redis can do to a server that shares its cache there: see each function."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from recall_service.stubs.recall.v1 import cache_pb2
from tests.redis_server import RedisServer
from tests.slow_proxy import slow_proxy

SLOW_SECONDS = 0.2
_RESTARTS = 3


@dataclass(frozen=True, slots=True)
class Ground:
    """A Redis under fire. spare: another one, empty, on a port of its own."""

    server: RedisServer
    spare: RedisServer
    client: redis.Redis


RedisFault = Callable[[Ground], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def killed(ground: Ground) -> AsyncIterator[None]:
    """Nobody listens."""
    ground.server.stop()
    yield
    await asyncio.to_thread(ground.server.start)


@asynccontextmanager
async def restarted(ground: Ground) -> AsyncIterator[None]:
    """Gone and back, empty, again and again."""

    async def restart() -> None:
        for _ in range(_RESTARTS):
            ground.server.stop()
            await asyncio.to_thread(ground.server.start)
            await asyncio.sleep(0.1)

    restarting = asyncio.create_task(restart())
    yield
    await restarting


@asynccontextmanager
async def frozen(ground: Ground) -> AsyncIterator[None]:
    """Connections are taken, and nothing is answered."""
    ground.server.freeze()
    yield
    ground.server.thaw()


@asynccontextmanager
async def slow(ground: Ground) -> AsyncIterator[None]:
    """Every answer comes, later than anybody can wait for it."""
    ground.server.stop()
    async with slow_proxy(ground.spare.port, port=ground.server.port, delay_seconds=SLOW_SECONDS):
        yield
    await asyncio.to_thread(ground.server.start)


@asynccontextmanager
async def out_of_memory(ground: Ground) -> AsyncIterator[None]:
    """Nothing more is taken."""
    ground.client.config_set("maxmemory", 1)
    yield
    ground.client.config_set("maxmemory", 0)


@asynccontextmanager
async def read_only(ground: Ground) -> AsyncIterator[None]:
    """A replica whose primary is gone: it answers what it has, and takes nothing."""
    ground.client.replicaof("127.0.0.1", 1)
    yield
    ground.client.replicaof("NO", "ONE")


@asynccontextmanager
async def poisoned(ground: Ground) -> AsyncIterator[None]:
    """Under every key lies something else than its answer, most of it nearly right."""
    chance = random.Random(14)
    keys = list(ground.client.scan_iter())
    values = [ground.client.get(key) for key in keys]
    assert keys, "there is nothing to be poisoned"
    for position, (key, value) in enumerate(zip(keys, values, strict=True)):
        assert isinstance(value, bytes)
        older = cache_pb2.CachedAnswer.FromString(value)
        older.format_version -= 1
        flipped = bytearray(value)
        flipped[chance.randrange(len(value))] ^= 1 << chance.randrange(8)
        poisons = (
            chance.randbytes(chance.randrange(200)),
            values[position - 1],
            older.SerializeToString(),
            bytes(flipped),
            value[: chance.randrange(len(value))],
        )
        ground.client.set(key, poisons[position % len(poisons)], keepttl=True)
    yield


@asynccontextmanager
async def wrong_type(ground: Ground) -> AsyncIterator[None]:
    """Under every key lies a list."""
    for key in ground.client.scan_iter():
        ground.client.delete(key)
        ground.client.rpush(key, "a", "b")
    yield


FAULTS: tuple[RedisFault, ...] = (
    killed, restarted, frozen, slow, out_of_memory, read_only, poisoned, wrong_type,
)  # fmt: skip


@asynccontextmanager
async def under_fire(server: RedisServer, binary: str, directory: Path) -> AsyncIterator[Ground]:
    """The place of `server` taken by a Redis of `binary`, and a spare; afterwards `server` is back, empty."""
    server.stop()
    taking_over, spare = RedisServer(binary, directory), RedisServer(binary, directory)
    taking_over.port = server.port
    try:
        for each in (taking_over, spare):
            await asyncio.to_thread(each.start)
        with redis.Redis(port=server.port) as client:
            yield Ground(taking_over, spare, client)
    finally:
        taking_over.stop()
        spare.stop()
        await asyncio.to_thread(server.start)
