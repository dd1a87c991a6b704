"""The result cache: this process first, then Redis, then one computation for equal questions in flight.

An answer is the same with and without it, but for the age that its settings allow. Only complete answers are kept.
Knows nothing of how an answer is computed, and sees a question only as its key.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from recall_service.errors import DeadlineExpired, Overloaded
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.redis_tier import RedisTier
from recall_service.serving.cache.refreshes import Refreshes
from recall_service.serving.cache.single_flight import SingleFlight
from recall_service.serving.hooks import Observer
from recall_service.serving.query import CacheMode, RecallAnswer

Compute = Callable[[], Awaitable[RecallAnswer]]

# Past this many writes under way, Redis is too slow to be worth more: further answers are not written.
_MAX_PENDING_WRITES = 256


class ResultCache:
    """Two tiers and the flights between them; for use by one event loop. Owns the tiers and closes them."""

    def __init__(self, local: LocalTier, redis: RedisTier | None, observer: Observer) -> None:
        self._local = local
        self._redis = redis
        self._observer = observer
        self._flights: SingleFlight[RecallAnswer] = SingleFlight(
            on_follow=observer.cache_coalesced, is_own=_is_of_a_deadline
        )
        self._refreshes = Refreshes(observer)
        self._writes: set[asyncio.Task[None]] = set()

    def fresh(self, key: bytes) -> RecallAnswer | None:
        """The answer that this process holds, if it is fresh: nothing to wait for, and no computation to get ready.

        All other questions are for `answer`, which looks here too.
        """
        started = time.perf_counter()
        answer = self._local.get_fresh(key)
        if answer is not None:
            self._observer.stage("cache_get", time.perf_counter() - started)
        return answer

    async def answer(
        self,
        key: bytes,
        mode: CacheMode,
        compute: Compute,
        recompute: Compute | None = None,
        *,
        seconds: float | None = None,
        lane: bytes = b"",
    ) -> RecallAnswer:
        """The answer to the question `key`, from a tier, from an equal question in flight, or from `compute`.

        recompute: computes it in the background, for no caller and by no caller's deadline, while a stale answer is
        served; None: `compute` does.
        seconds: how long the caller waits at most, for others' computations too; None: as long as it takes. An answer
        that this process holds costs no timer.
        lane: equal questions in flight wait for each other within a lane only: who is in a hurry must not depend on a
        computation that lets others go first.
        `served_from` says which; an answer from a tier has no timings and no rows. Raises what `compute` raises, and
        TimeoutError.
        """
        if mode is CacheMode.USE:
            recompute = recompute or compute
            started = time.perf_counter()
            kept = self._local.get(key)
            if kept is None:
                async with asyncio.timeout(seconds):
                    return await self._flights.run(
                        key + lane,
                        partial(self._look_further, key, compute, recompute, started),
                        partial(self._compute, key, compute),  # Redis has been asked
                    )
            if kept.is_stale:
                self._refreshes.begin(key, partial(self._refresh, key, recompute))
            self._observer.stage("cache_get", time.perf_counter() - started)
            return kept.answer
        self._report_bypass()
        async with asyncio.timeout(seconds):
            answer = await compute()
        if mode is CacheMode.REFRESH:
            self._store(key, answer)
        return answer

    async def close(self) -> None:
        """Stop what is computed in the background, let pending writes end within their budget, then close Redis."""
        await self._refreshes.close()
        await asyncio.gather(*self._writes)
        if self._redis is not None:
            await self._redis.close()

    async def _look_further(self, key: bytes, compute: Compute, recompute: Compute, started: float) -> RecallAnswer:
        kept = None if self._redis is None else await self._redis.get(key)
        self._observer.stage("cache_get", time.perf_counter() - started)
        if kept is not None:
            self._local.put(key, kept.answer, kept.fresh_until)
            if kept.is_stale:
                self._refreshes.begin(key, partial(self._refresh, key, recompute))
            return kept.answer
        return await self._compute(key, compute)

    async def _compute(self, key: bytes, compute: Compute) -> RecallAnswer:
        answer = await compute()
        self._store(key, answer)
        return answer

    async def _refresh(self, key: bytes, recompute: Compute) -> None:
        """Replace a stale answer, by what another replica has computed since where there is one."""
        kept = None if self._redis is None else await self._redis.get(key)
        if kept is not None and not kept.is_stale:
            self._local.put(key, kept.answer, kept.fresh_until)
        else:
            self._store(key, await recompute())

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


def _is_of_a_deadline(error: BaseException) -> bool:
    """Whether a caller's own deadline ended its computation: a longer one may well be met."""
    return isinstance(error, DeadlineExpired) or (isinstance(error, Overloaded) and error.limit == "deadline")
