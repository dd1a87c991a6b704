"""An engine that is four times as slow for 0.65 s, at 70 % of its capacity, with clients that come back when told to.

What such a moment must not do is outlast itself: late answers, retries that come on top of new questions, a queue that
never empties again. Every call has a deadline; clients try again as the service's own client does.
"""

import asyncio
import signal
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from benchmarks.service_load import LoadSettings, Outcome, answers_per_second, percentiles, send_at_rate
from benchmarks.service_overload import BEAM_WIDTH, DEADLINE_SECONDS, NUM_AT_ONCE, STEP_SECONDS, search_of
from benchmarks.service_servers import Server, bundle_of, questions, stub_server
from benchmarks.service_stub import SLOW_SECONDS
from recall_service.client.policy import RETRYING, channel_options
from recall_service.rpc.server import SERVICE_NAME

LOAD, BEFORE_SECONDS, AFTER_SECONDS = 0.7, 4.0, 6.0


def measure(load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """How much was answered in time before, during and after, and when it was as before again."""
    with tempfile.TemporaryDirectory() as parent:
        directory = bundle_of(BEAM_WIDTH, Path(parent) / "bundle")
        with stub_server(directory, STEP_SECONDS, BEAM_WIDTH * NUM_AT_ONCE) as server:
            return {"slow_spell": asyncio.run(_measure(server, load, tell))}


async def _measure(server: Server, load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    searches = [search_of(question) for question in questions()]
    async with grpc.aio.insecure_channel(server.address, options=channel_options(RETRYING)) as channel:
        ask = channel.unary_unary(f"/{SERVICE_NAME}/Recall")
        tell("slow spell: capacity")
        capacity = await answers_per_second(ask, searches, seconds=load.seconds * 3, concurrency=4 * NUM_AT_ONCE)
        tell("slow spell: before, during, after")
        seconds = BEFORE_SECONDS + SLOW_SECONDS + AFTER_SECONDS
        asyncio.get_running_loop().call_later(BEFORE_SECONDS, server.process.send_signal, signal.SIGUSR1)
        outcomes = await send_at_rate(
            partial(ask, timeout=DEADLINE_SECONDS), searches, seconds=seconds, rate=LOAD * capacity, seed=0
        )
    return _summary(outcomes, LOAD * capacity)


def _summary(outcomes: list[Outcome], rate: float) -> dict[str, Any]:
    first = min(outcome.planned for outcome in outcomes)

    def within(start: float, end: float) -> list[Outcome]:
        return [outcome for outcome in outcomes if start <= outcome.planned - first < end]

    slow_ends = BEFORE_SECONDS + SLOW_SECONDS
    before, after = within(1.0, BEFORE_SECONDS), within(slow_ends, slow_ends + AFTER_SECONDS)
    usual_p99_ms = percentiles([outcome.seconds for outcome in before], 99)[0]
    odd = [
        outcome.planned - first - slow_ends
        for outcome in after
        if outcome.code is not grpc.StatusCode.OK or outcome.seconds * 1e3 > 2 * usual_p99_ms
    ]
    return {
        "load_qps": round(rate, 1),
        "good_share_before": _good_share(before),
        "good_share_during": _good_share(within(BEFORE_SECONDS, slow_ends)),
        "good_share_after": _good_share(after),
        "recovery_seconds": round(max(odd, default=0.0), 2),
    }


def _good_share(outcomes: list[Outcome]) -> float:
    return round(sum(outcome.code is grpc.StatusCode.OK for outcome in outcomes) / len(outcomes), 3)
