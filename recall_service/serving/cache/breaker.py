"""The breaker in front of Redis: after some failures in a row, stop asking for a while.

Closed: every call may ask. Open: none may, until `open_seconds` have passed; then one call is let through as a probe.
Its success closes the breaker, its failure starts the wait anew. Knows no commands and no connections.
"""

import logging
import time
from collections.abc import Callable

from recall_service.serving.hooks import Observer

logger = logging.getLogger(__name__)


class Breaker:
    """Counts failures in a row; for use by one event loop."""

    def __init__(
        self, *, failures: int, open_seconds: float, observer: Observer, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures_to_open = failures
        self._open_seconds = open_seconds
        self._observer = observer
        self._clock = clock
        self._failures_in_row = 0
        self._last_failure = float("-inf")
        self._next_probe = 0.0
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether calls are being turned away, but for a probe now and then."""
        return self._is_open

    def admit(self) -> float | None:
        """The moment of admission, to be handed to `failed`; None: do not ask now. While open, it admits a probe."""
        now = self._clock()
        if self._is_open:
            if now < self._next_probe:
                return None
            # Set before the probe reports: a probe that never does must not leave the breaker open for ever.
            self._next_probe = now + self._open_seconds
        return now

    def succeeded(self) -> None:
        """A call was answered."""
        self._failures_in_row = 0
        if self._is_open:
            self._is_open = False
            self._observer.cache_breaker(is_open=False)
            logger.warning("Redis answers again; the result cache asks it from now on")

    def failed(self, error: BaseException, *, admitted: float) -> None:
        """A call was not answered. Only the type of `error` is ever logged, for its text may quote an address.

        Calls that were under way when another failed saw the same trouble, and count with it as one: a burst during one
        stall of this process must not look like a server that keeps failing.
        """
        if admitted <= self._last_failure:
            return
        self._last_failure = self._clock()
        self._failures_in_row += 1
        if self._failures_in_row < self._failures_to_open:
            return
        self._next_probe = self._last_failure + self._open_seconds
        if not self._is_open:
            self._is_open = True
            self._observer.cache_breaker(is_open=True)
            logger.warning(
                "Redis failed %d times in a row, last with %s; the result cache asks it again in %g s",
                self._failures_in_row,
                type(error).__name__,
                self._open_seconds,
            )
