"""The cache tier that replicas share: Redis, asked politely and never trusted.

Whatever Redis does (down, slow, hung, full, failing over, wrong password, foreign values), a get ends within its budget
with an answer or None, a put ends without an error, and nobody is told but the observer and the breaker. Nothing is
retried. The one breaker stands before all nodes of a cluster: when one of them fails often in a row, all are spared.

How long a value is fresh travels with it, by its writer's wall clock. Where clocks differ, an answer is served at most
one life too long, and at worst computed again.
"""

import asyncio
import time
from collections.abc import Awaitable
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ClusterDownError, ResponseError

from recall_service.serving.cache.answer_codec import StoredAnswer, decode, encode
from recall_service.serving.cache.breaker import Breaker
from recall_service.serving.cache.redis_connection import ConnectionBounds, open_redis
from recall_service.serving.cache.time_to_live import KeptAnswer, TimeToLive
from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallAnswer

Reply = TypeVar("Reply")

# Nobody waits for a put, so it may take this many get budgets: time to open a connection (TLS, password) that gets then
# find in the pool.
_PUT_BUDGETS = 5

# Past this many commands under way, Redis is not asked: a bypass. A get waits for a connection for its budget at most:
# it takes 50,000 questions a second, and a Redis that hangs, to get here.
_MAX_PENDING_COMMANDS = 1024


class RedisTier:
    """Answers under `key_prefix` + hex digest.

    url: as in `recall_service.redis_url`, with its password if any; it is neither kept nor shown.
    timeout_seconds: the budget of a get, waiting for a connection and opening one included.
    pool_size: how many connections at most, to each server; further calls wait for one within their budget.
    Raises SettingsError when a file of the URL's TLS options cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        pool_size: int,
        key_prefix: str,
        time_to_live: TimeToLive,
        breaker: Breaker,
        observer: Observer,
    ) -> None:
        self._get_budget = timeout_seconds
        self._put_budget = timeout_seconds * _PUT_BUDGETS
        self._key_prefix = key_prefix
        self._time_to_live = time_to_live
        self._breaker = breaker
        self._observer = observer
        self._commands: set[asyncio.Task[Any]] = set()
        self._budgets: dict[asyncio.Task[Any], asyncio.TimerHandle] = {}  # of those that are not late yet
        self._client = open_redis(
            url,
            ConnectionBounds(pool_size=pool_size, wait_seconds=self._get_budget, socket_seconds=self._put_budget),
        )

    async def get(self, key: bytes) -> KeptAnswer | None:
        """The answer under `key`, served from this tier; None when there is none, or Redis cannot say in time."""
        if (admitted := self._admit()) is None:
            self._observer.cache_request("redis", "bypass")
            return None
        started = time.perf_counter()
        try:
            value = await self._run(self._client.get(self._name(key)), self._get_budget, admitted)
        except Exception:  # noqa: BLE001 - whatever a client or server brings up, it must not fail a question
            self._observer.cache_request("redis", "error")
            return None
        finally:
            self._observer.cache_operation("redis", "get", time.perf_counter() - started)
        stored = decode(value, key) if isinstance(value, bytes) else None
        kept = None if stored is None else self._kept(stored)
        self._observer.cache_request("redis", "miss" if kept is None else "stale" if kept.is_stale else "hit")
        return kept

    async def put(self, key: bytes, answer: RecallAnswer) -> None:
        """Store a complete `answer`, if Redis takes it in time."""
        if (admitted := self._admit()) is None:
            return
        started = time.perf_counter()
        fresh_seconds = self._time_to_live.draw()
        value = encode(answer, key, round((time.time() + fresh_seconds) * 1000))
        milliseconds = max(1, round((fresh_seconds + self._time_to_live.stale_seconds) * 1000))
        try:
            await self._run(self._client.set(self._name(key), value, px=milliseconds), self._put_budget, admitted)
        except Exception:  # noqa: BLE001, S110 - as above, and the breaker has been told
            pass
        finally:
            self._observer.cache_operation("redis", "put", time.perf_counter() - started)

    async def close(self) -> None:
        """Let commands under way end, for at most one put budget, then drop every connection."""
        if self._commands:
            _, late = await asyncio.wait(self._commands, timeout=self._put_budget)
            for command in late:
                command.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.aclose()

    def _name(self, key: bytes) -> str:
        return f"{self._key_prefix}{key.hex()}"

    def _admit(self) -> float | None:
        """The moment of admission by the breaker; None: Redis is not to be asked now."""
        return None if len(self._commands) >= _MAX_PENDING_COMMANDS else self._breaker.admit()

    def _kept(self, stored: StoredAnswer) -> KeptAnswer | None:
        """None for an answer that is too old; one without a stamp, of an older writer, is fresh."""
        if stored.fresh_until_unix_ms == 0:
            fresh_seconds = self._time_to_live.draw()
        else:
            fresh_seconds = min(stored.fresh_until_unix_ms / 1000 - time.time(), self._time_to_live.seconds)
        if fresh_seconds <= -self._time_to_live.stale_seconds:
            return None
        return KeptAnswer(stored.answer, time.monotonic() + fresh_seconds)

    async def _run(self, command: Awaitable[Reply], budget_seconds: float, admitted: float) -> Reply:
        """The reply to `command`; TimeoutError after `budget_seconds`.

        The command is a task of its own that neither a caller's cancellation nor the budget cuts short, for redis-py
        drops the connection of a command that is cut: callers that leave, or a slow Redis, would be answered with a
        storm of new connections (3,600 cancelled gets made 393 that way, and 10 this way). The socket timeouts end it.
        And it reports to the breaker by itself, or else a Redis that answers later than callers leave would never open
        it.
        """
        task = asyncio.ensure_future(command)
        self._commands.add(task)
        self._budgets[task] = asyncio.get_running_loop().call_later(budget_seconds, self._overran, task, admitted)
        task.add_done_callback(partial(self._ended, admitted))
        done, _ = await asyncio.wait([task], timeout=budget_seconds)
        if not done:
            raise TimeoutError
        return task.result()

    def _overran(self, task: asyncio.Task[Any], admitted: float) -> None:
        del self._budgets[task]
        self._breaker.failed(TimeoutError(), admitted=admitted)

    def _ended(self, admitted: float, task: asyncio.Task[Any]) -> None:
        self._commands.discard(task)
        budget = self._budgets.pop(task, None)
        if budget is not None:
            budget.cancel()
        if task.cancelled():
            return
        error = task.exception()  # looked at even when late, so that asyncio does not report it as forgotten
        if budget is not None:
            self._report(error, admitted)

    def _report(self, error: BaseException | None, admitted: float) -> None:
        """An error reply (wrong type, no memory, no permission) is a fast answer of a live server: no cause to stop.

        But for a cluster that says it is down.
        """
        if error is None or (isinstance(error, ResponseError) and not isinstance(error, ClusterDownError)):
            self._breaker.succeeded()
        else:
            self._breaker.failed(error, admitted=admitted)
