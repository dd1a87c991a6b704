"""Stale answers being computed anew in the background: each once, few at a time, and nobody waits for them.

What fails is not tried again at once. Knows a question only as its key, and nothing of how it is answered.
"""

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable

from cachetools import TTLCache

from recall_service.errors import Overloaded, RecallError
from recall_service.serving.hooks import Observer

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 10.0  # whatever runs longer is given up: the caller whose question began it has long been answered
_MAX_AT_ONCE = 32
_REST_SECONDS = 1.0  # after a failure, before the same answer is tried again
_MAX_RESTING = 4096  # past it the oldest rest less


class Refreshes:
    """For use by one event loop."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._resting: TTLCache[bytes, None] = TTLCache(_MAX_RESTING, _REST_SECONDS)

    def begin(self, key: bytes, refresh: Callable[[], Awaitable[None]]) -> None:
        """Run `refresh` unless it runs already, has just failed, or too many others run."""
        if key in self._running or key in self._resting:
            return
        if len(self._running) >= _MAX_AT_ONCE:
            self._observer.cache_refresh("dropped")
            return
        # In a context of its own: what it does is no part of the call, or the trace, of the caller that came by.
        task = asyncio.create_task(self._run(key, refresh), context=contextvars.Context())
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key))

    async def close(self) -> None:
        """Stop what runs."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, key: bytes, refresh: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await refresh()
        except Exception as error:  # whatever it is, the stale answer serves on and no caller is told
            self._resting[key] = None
            self._observer.cache_refresh("dropped" if isinstance(error, Overloaded) else "failed")
            if not isinstance(error, RecallError | TimeoutError):
                logger.exception("a stale answer could not be computed anew")
        else:
            self._observer.cache_refresh("done")
