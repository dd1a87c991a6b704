"""One piece of work at a time: whoever asks for more waits for their turn, as long as they care to."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from recall_service.errors import NotReady

Done = TypeVar("Done")


class Turns:
    """For use by one event loop.

    Work that has begun is carried through, whether or not whoever asked for it still waits. What has not begun when
    they leave never does.
    num_waiting: how many wait for their turn.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[Any] | None = None
        self._is_closed = False
        self.num_waiting = 0

    async def take(self, work: Callable[[], Coroutine[Any, Any, Done]]) -> Done:
        """What comes of the work, once it was its turn. Raises what the work does, and NotReady after `close`."""
        self.num_waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self.num_waiting -= 1
        if self._is_closed:
            self._lock.release()
            raise NotReady("this server ends, and changes nothing more; ask another replica")
        self._running = task = asyncio.create_task(work())
        task.add_done_callback(self._end)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what runs, and begin nothing any more."""
        self._is_closed = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._running = None
        self._lock.release()
        if not task.cancelled():
            task.exception()  # looked at: whoever asked may have left
