"""Load on a gRPC method of bytes: as much as it takes, or so many calls per second whatever becomes of them.

The client knows no messages: it sends the same bytes to every server, and does not read what comes back.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import grpc
import numpy as np

Ask = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """rounds: of each kind, `seconds` long. concurrency: calls under way when the client makes no pause.

    overload_seconds: how long each load beyond capacity lasts.
    """

    rounds: int
    seconds: float
    concurrency: int
    overload_seconds: float


class Outcome(NamedTuple):
    """What became of one call. planned, sent: seconds of `time.perf_counter()`. seconds: from then to its end."""

    planned: float
    sent: float
    seconds: float
    code: grpc.StatusCode


class Latencies(NamedTuple):
    """Of calls sent at their times, in milliseconds. lag: how much later than planned the client sent them."""

    p50_ms: float
    p99_ms: float
    lag_p99_ms: float


async def answers_per_second(ask: Ask, questions: Sequence[bytes], *, seconds: float, concurrency: int) -> float:
    """Keep `concurrency` calls under way all the time."""
    num_answers, started = 0, time.perf_counter()

    async def keep_asking(first: int) -> None:
        nonlocal num_answers
        for position in itertools.count(first):
            await ask(questions[position % len(questions)])
            if time.perf_counter() > started + seconds:
                return
            num_answers += 1

    await asyncio.gather(*map(keep_asking, range(concurrency)))
    return num_answers / seconds


async def send_at_rate(
    ask: Ask, questions: Sequence[bytes], *, seconds: float, rate: float, seed: int
) -> list[Outcome]:
    """Send `rate` calls per second at times of chance (Poisson), the same for the same `seed`.

    The loop's own timers are a millisecond coarse, and a loop that goes round and round takes a processor from the
    server's threads; so another thread sleeps until each is due.
    """
    due = _times_of_chance(rate, seconds, seed)
    loop = asyncio.get_running_loop()
    outcomes: list[Outcome] = []
    calls: list[asyncio.Task[None]] = []

    async def ask_once(question: bytes, planned: float) -> None:
        sent, code = time.perf_counter(), grpc.StatusCode.OK
        try:
            await ask(question)
        except grpc.aio.AioRpcError as error:
            code = error.code()
        outcomes.append(Outcome(planned, sent, time.perf_counter() - sent, code))

    def send(question: bytes, planned: float) -> None:
        calls.append(loop.create_task(ask_once(question, planned)))

    def send_when_due() -> None:
        started = time.perf_counter()
        for position, after in enumerate(due):
            time.sleep(max(0.0, started + after - time.perf_counter()))
            loop.call_soon_threadsafe(send, questions[position % len(questions)], started + after)

    await asyncio.to_thread(send_when_due)
    await asyncio.sleep(0)  # what the thread gave the loop last is begun
    await asyncio.gather(*calls)
    return outcomes


def _times_of_chance(rate: float, seconds: float, seed: int) -> list[float]:
    chance, at, times = random.Random(seed), 0.0, []  # noqa: S311
    while (at := at + chance.expovariate(rate)) < seconds:
        times.append(at)
    return times


def latencies(outcomes: Sequence[Outcome]) -> Latencies:
    """How long the calls took, those that failed included."""
    p50, p99 = percentiles([outcome.seconds for outcome in outcomes], 50, 99)
    (lag,) = percentiles([outcome.sent - outcome.planned for outcome in outcomes], 99)
    return Latencies(p50, p99, lag)


def percentiles(seconds: Sequence[float], *wanted: float) -> list[float]:
    """In milliseconds, to the microsecond; 0 where there is nothing to tell of."""
    if not seconds:
        return [0.0] * len(wanted)
    return [round(float(value) * 1e3, 3) for value in np.percentile(seconds, wanted)]
