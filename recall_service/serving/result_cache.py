"""The result cache: this process first, then Redis, then one computation for equal questions in flight.

An answer is the same with and without it. Only complete answers are kept. Knows nothing of how an answer is computed,
and sees a question only as its key.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from recall_service.serving.hooks import Observer
from recall_service.serving.local_tier import LocalTier
from recall_service.serving.query import CacheMode, RecallAnswer
from recall_service.serving.redis_tier import RedisTier
from recall_service.serving.single_flight import SingleFlight

Compute = Callable[[], Awaitable[RecallAnswer]]

# Past this many writes under way, Redis is too slow to be worth more: further answers are not written.
_MAX_PENDING_WRITES = 256


class ResultCache:
    """Two tiers and the flights between them; for use by one event loop. Owns the tiers and closes them."""

    def __init__(self, local: LocalTier, redis: RedisTier | None, observer: Observer) -> None:
        self._local = local
        self._redis = redis
        self._observer = observer
        self._flights: SingleFlight[RecallAnswer] = SingleFlight(on_follow=observer.cache_coalesced)
        self._writes: set[asyncio.Task[None]] = set()

    async def answer(self, key: bytes, mode: CacheMode, compute: Compute) -> RecallAnswer:
        """The answer to the question `key`, from a tier, from an equal question in flight, or from `compute`.

        `served_from` says which; an answer from a tier has no timings and no rows. Raises what `compute` raises, and
        nothing of its own. With USE a caller may wait for another's computation: bound the call by its own deadline.
        """
        if mode is CacheMode.USE:
            started = time.perf_counter()
            cached = self._local.get(key)
            if cached is None:
                return await self._flights.run(key, partial(self._look_further, key, compute, started))
            self._observer.stage("cache_get", time.perf_counter() - started)
            return cached
        self._report_bypass()
        answer = await compute()
        if mode is CacheMode.REFRESH:
            self._store(key, answer)
        return answer

    async def close(self) -> None:
        """Let pending writes end, each within its budget, then close Redis."""
        await asyncio.gather(*self._writes)
        if self._redis is not None:
            await self._redis.close()

    async def _look_further(self, key: bytes, compute: Compute, started: float) -> RecallAnswer:
        cached = None if self._redis is None else await self._redis.get(key)
        self._observer.stage("cache_get", time.perf_counter() - started)
        if cached is not None:
            self._local.put(key, cached)
            return cached
        answer = await compute()
        self._store(key, answer)
        return answer

    def _store(self, key: bytes, answer: RecallAnswer) -> None:
        if answer.short_reason is not None:
            return
        started = time.perf_counter()
        self._local.put(key, answer)
        if self._redis is not None and len(self._writes) < _MAX_PENDING_WRITES:
            write = asyncio.create_task(self._redis.put(key, answer))
            self._writes.add(write)  # a task that nobody holds may be collected before it ran
            write.add_done_callback(self._writes.discard)
        self._observer.stage("cache_put", time.perf_counter() - started)

    def _report_bypass(self) -> None:
        self._observer.cache_request("local", "bypass")
        if self._redis is not None:
            self._observer.cache_request("redis", "bypass")
