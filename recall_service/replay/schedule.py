"""When each question is to be sent: an open loop, that is, decided without any regard to answers.

Knows no clock and no target. Every schedule keeps the order of its questions.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from recall_service.replay.asked import Asked


class Scheduled(NamedTuple):
    """A question and when to send it, in seconds from the start of the run; None: as soon as there is room."""

    intended_seconds: float | None
    asked: Asked


Schedule = Callable[[Iterable[Asked]], Iterator[Scheduled]]


def original_timing(speed: float = 1.0) -> Schedule:
    """As the questions once arrived, `speed` times as fast. One that is out of order goes out with the one before."""

    def schedule(questions: Iterable[Asked]) -> Iterator[Scheduled]:
        latest = 0.0
        for asked in questions:
            latest = max(latest, asked.arrival_seconds / speed)
            yield Scheduled(latest, asked)

    return schedule


def fixed_rate(per_second: float) -> Schedule:
    """Evenly spaced, the first one at once."""

    def schedule(questions: Iterable[Asked]) -> Iterator[Scheduled]:
        for position, asked in enumerate(questions):
            yield Scheduled(position / per_second, asked)

    return schedule


def poisson(per_second: float, seed: int) -> Schedule:
    """As independent users arrive: exponential gaps of mean 1 / `per_second`; the same gaps for the same seed."""

    def schedule(questions: Iterable[Asked]) -> Iterator[Scheduled]:
        gaps, now = random.Random(seed), 0.0  # noqa: S311  not for secrets
        for asked in questions:
            now += gaps.expovariate(per_second)
            yield Scheduled(now, asked)

    return schedule


def as_fast_as_possible() -> Schedule:
    """Whenever there is room: the loop is closed, and the cap on calls in flight is the load."""
    return lambda questions: (Scheduled(None, asked) for asked in questions)
