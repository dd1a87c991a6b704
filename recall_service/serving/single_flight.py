"""One computation for equal questions in flight: the first caller leads, the others follow it.

The leader computes in its own task, so its deadline and its cancellation are its own. When it ends without a result, a
follower takes the lead with its own computation. A follower that goes away disturbs nobody. Knows nothing of what is
computed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Generic, TypeVar

Result = TypeVar("Result")

# With a second leader failed too, the rest compute at once for themselves: nobody waits in a long chain of failures.
_MAX_FAILURES_FOLLOWED = 2


class _Without(Enum):
    """How a leader ended that had no result."""

    FAILED = auto()
    LEFT = auto()  # its caller went away or ran out of time, which says nothing of the computation


class SingleFlight(Generic[Result]):
    """Flights by key; for use by one event loop. `on_follow` is called for every caller that a leader answered."""

    def __init__(self, on_follow: Callable[[], None]) -> None:
        self._on_follow = on_follow
        self._flights: dict[bytes, asyncio.Future[Result | _Without]] = {}

    async def run(self, key: bytes, compute: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `compute`, or of an equal call's. Raises what this caller's own `compute` raises."""
        failures = 0
        while failures < _MAX_FAILURES_FOLLOWED:
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(key, compute)
            await asyncio.wait([flight])  # unlike `await flight`, a cancelled wait leaves the flight alone
            result = flight.result()
            if not isinstance(result, _Without):
                self._on_follow()
                return result
            failures += result is _Without.FAILED
        return await compute()

    async def _lead(self, key: bytes, compute: Callable[[], Awaitable[Result]]) -> Result:
        flight: asyncio.Future[Result | _Without] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        end: Result | _Without = _Without.FAILED
        try:
            result = end = await compute()
            return result
        except asyncio.CancelledError:
            end = _Without.LEFT
            raise
        finally:  # on success, failure and cancellation alike
            del self._flights[key]
            flight.set_result(end)
