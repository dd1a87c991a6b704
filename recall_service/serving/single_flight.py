"""One computation for equal questions in flight: the first caller leads, the others follow it.

The leader computes in its own task, so its deadline and its cancellation are its own. When it fails, a follower takes
the lead with its own computation. A follower that goes away disturbs nobody. Knows nothing of what is computed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")

# With a second leader failed too, the rest compute at once for themselves: nobody waits in a long chain of failures.
_MAX_LEADERS_FOLLOWED = 2


class SingleFlight(Generic[Result]):
    """Flights by key; for use by one event loop. `on_follow` is called for every caller that a leader answered."""

    def __init__(self, on_follow: Callable[[], None]) -> None:
        self._on_follow = on_follow
        self._flights: dict[bytes, asyncio.Future[Result | None]] = {}  # None: the leader failed

    async def run(self, key: bytes, compute: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `compute`, or of an equal call's. Raises what this caller's own `compute` raises."""
        for _ in range(_MAX_LEADERS_FOLLOWED):
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(key, compute)
            await asyncio.wait([flight])  # unlike `await flight`, a cancelled wait leaves the flight alone
            result = flight.result()
            if result is not None:
                self._on_follow()
                return result
        return await compute()

    async def _lead(self, key: bytes, compute: Callable[[], Awaitable[Result]]) -> Result:
        flight: asyncio.Future[Result | None] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        result: Result | None = None
        try:
            result = await compute()
            return result
        finally:  # on success, failure and cancellation alike
            del self._flights[key]
            flight.set_result(result)
