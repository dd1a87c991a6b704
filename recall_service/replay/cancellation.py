"""Which questions the replay gives up on purpose, and when: callers do so, and a server must cope."""

import random


class Cancellation:
    """Draws for one question after another; the same draws for the same seed.

    share: of the questions, 0 to 1, that are given up unless they are answered before.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._draws = random.Random(f"cancellation {seed}")  # noqa: S311  not for secrets

    def draw(self, timeout_seconds: float) -> float | None:
        """After how many seconds the next question is given up, a random part of its timeout; None: not at all."""
        if not self._share:
            return None
        is_chosen, part = self._draws.random() < self._share, self._draws.random()
        return part * timeout_seconds if is_chosen else None
