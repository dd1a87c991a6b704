"""Whether calls are let in, and how many of them are inside. Knows neither gRPC nor what a call does."""

import asyncio

from recall_service.errors import NotReady

_WARMING_UP = "the server is warming up; ask another replica, or come back in a few seconds"
_DRAINING = "the server is shutting down; ask another replica"


class Admission:
    """The door: shut while warming up, open while serving, shut for good once draining."""

    def __init__(self) -> None:
        self._refusal: str | None = _WARMING_UP
        self._num_inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def open(self) -> None:
        """Let calls in from now on; without effect once closed."""
        if self._refusal is _WARMING_UP:
            self._refusal = None

    def close(self) -> None:
        """Refuse calls from now on, for good; those inside are not touched."""
        self._refusal = _DRAINING

    @property
    def is_open(self) -> bool:
        """Whether calls are let in now."""
        return self._refusal is None

    def enter(self) -> None:
        """Take a call in; it must leave again. Raises NotReady when the door is shut."""
        if self._refusal is not None:
            raise NotReady(self._refusal)
        self._num_inside += 1
        self._empty.clear()

    def leave(self) -> None:
        """Count out a call that entered."""
        self._num_inside -= 1
        if self._num_inside == 0:
            self._empty.set()

    async def wait_until_empty(self) -> None:
        """Wait until nobody is inside."""
        await self._empty.wait()
