"""How long a cached answer lives: a fixed time less a random part, lest answers of one moment all expire in another.

Then it is stale: kept for a while yet, and served while it is computed anew.
"""

import random
import time
from dataclasses import dataclass
from typing import NamedTuple

from recall_service.serving.query import RecallAnswer


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """seconds: the longest life, over 0. jitter: the share of it, 0 to below 1, that chance may take away.

    stale_seconds: for how long it is served on after that; 0: not at all.
    """

    seconds: float
    jitter: float
    stale_seconds: float = 0.0

    def draw(self) -> float:
        """Seconds for one answer, uniform in ((1 - jitter) * seconds, seconds]."""
        return self.seconds * (1 - self.jitter * random.random())  # noqa: S311 - spreads load, guards no secret


class KeptAnswer(NamedTuple):
    """An answer as a tier keeps it. fresh_until: seconds of `time.monotonic()`; it is stale from then on."""

    answer: RecallAnswer
    fresh_until: float

    @property
    def is_stale(self) -> bool:
        """Whether it should be computed anew."""
        return time.monotonic() >= self.fresh_until
