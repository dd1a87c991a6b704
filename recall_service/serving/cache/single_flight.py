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
    LEFT = auto()  # its caller went away or ran out of time, which says nothing of others' computations


class SingleFlight(Generic[Result]):
    """Flights by key; for use by one event loop.

    on_follow: called for every caller that a leader answered.
    is_own: whether an error is its caller's alone, as a cancellation is: any number of such leaders are followed.
    """

    def __init__(self, on_follow: Callable[[], None], is_own: Callable[[BaseException], bool]) -> None:
        self._on_follow = on_follow
        self._is_own = is_own
        self._flights: dict[bytes, asyncio.Future[Result | _Without]] = {}

    async def run(
        self,
        key: bytes,
        compute: Callable[[], Awaitable[Result]],
        take_over: Callable[[], Awaitable[Result]] | None = None,
    ) -> Result:
        """The result of `compute`, or of an equal call's. Raises what this caller's own computation raises.

        take_over: in place of `compute` after a leader without a result, lest what that one tried be tried again.
        """
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
            compute = take_over or compute
        return await compute()

    async def _lead(self, key: bytes, compute: Callable[[], Awaitable[Result]]) -> Result:
        flight: asyncio.Future[Result | _Without] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        end: Result | _Without = _Without.FAILED
        try:
            result = end = await compute()
            return result
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or self._is_own(error):
                end = _Without.LEFT
            raise
        finally:  # on success, failure and cancellation alike
            del self._flights[key]
            flight.set_result(end)
