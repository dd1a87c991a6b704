"""The cache tier that replicas share: Redis, asked politely and never trusted.

Whatever Redis does (down, slow, hung, full, wrong password, foreign values), a get ends within its budget with an
answer or None, a put ends without an error, and nobody is told but the observer and the breaker. Nothing is retried.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from recall_service.serving.answer_codec import decode, encode
from recall_service.serving.breaker import Breaker
from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallAnswer
from recall_service.serving.time_to_live import TimeToLive

Reply = TypeVar("Reply")

# Nobody waits for a put, so it may take this many get budgets: time to open a connection (TLS, password) that gets then
# find in the pool.
_PUT_BUDGETS = 5


class RedisTier:
    """Answers under `key_prefix` + hex digest.

    url: redis://, rediss:// or unix://, with its password if any; it is neither kept nor shown.
    timeout_seconds: the budget of a get, waiting for a connection and opening one included.
    pool_size: how many connections at most; further calls wait for one within their budget.
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
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=pool_size,
            timeout=self._get_budget,
            socket_connect_timeout=self._put_budget,
            socket_timeout=self._put_budget,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # RESP3 costs a HELLO for every connection, and its pushes are of no use here
        )
        self._client = Redis.from_pool(pool)

    async def get(self, key: bytes) -> RecallAnswer | None:
        """The answer under `key`, served from this tier; None when there is none, or Redis cannot say in time."""
        if (admitted := self._breaker.admit()) is None:
            self._observer.cache_request("redis", "bypass")
            return None
        started = time.perf_counter()
        try:
            value = await self._run(self._client.get(self._name(key)), self._get_budget)
        except Exception as error:  # noqa: BLE001 - whatever a client or server brings up, it must not fail a question
            self._failed(error, admitted)
            self._observer.cache_request("redis", "error")
            return None
        finally:
            self._observer.cache_operation("redis", "get", time.perf_counter() - started)
        self._breaker.succeeded()
        answer = decode(value, key) if isinstance(value, bytes) else None
        self._observer.cache_request("redis", "miss" if answer is None else "hit")
        return answer

    async def put(self, key: bytes, answer: RecallAnswer) -> None:
        """Store a complete `answer`, if Redis takes it in time."""
        if (admitted := self._breaker.admit()) is None:
            return
        started = time.perf_counter()
        milliseconds = max(1, round(self._time_to_live.draw() * 1000))
        try:
            await self._run(self._client.set(self._name(key), encode(answer, key), px=milliseconds), self._put_budget)
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error, admitted)
        else:
            self._breaker.succeeded()
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

    def _failed(self, error: Exception, admitted: float) -> None:
        """An error reply (wrong type, no memory, no permission) is a fast answer of a live server: no cause to stop."""
        if isinstance(error, ResponseError):
            self._breaker.succeeded()
        else:
            self._breaker.failed(error, admitted=admitted)

    async def _run(self, command: Awaitable[Reply], budget_seconds: float) -> Reply:
        """The reply to `command`; TimeoutError after `budget_seconds`.

        The command is a task of its own that neither a caller's cancellation nor the budget cuts short, for redis-py
        drops the connection of a command that is cut: callers that leave, or a slow Redis, would be answered with a
        storm of new connections (3,600 cancelled gets made 393 that way, and 10 this way). The socket timeouts end it.
        """
        task = asyncio.ensure_future(command)
        self._commands.add(task)
        task.add_done_callback(self._retire)
        done, _ = await asyncio.wait([task], timeout=budget_seconds)
        if not done:
            raise TimeoutError
        return task.result()

    def _retire(self, task: asyncio.Task[Any]) -> None:
        self._commands.discard(task)
        if not task.cancelled():
            task.exception()  # of an abandoned command: looked at, so that asyncio does not report it as forgotten
