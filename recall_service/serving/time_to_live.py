"""How long a cached answer lives: a fixed time less a random part, lest answers of one moment all expire in another."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeToLive:
    """seconds: the longest life, over 0. jitter: the share of it, 0 to below 1, that chance may take away."""

    seconds: float
    jitter: float

    def draw(self) -> float:
        """Seconds for one answer, uniform in ((1 - jitter) * seconds, seconds]."""
        return self.seconds * (1 - self.jitter * random.random())  # noqa: S311 - spreads load, guards no secret
