"""More questions than an engine can search: what is still answered, how soon the rest is refused, and how it ends.

Load comes at 0.5, 1, 2 and 10 times the capacity that was measured, every call with a deadline. The engine is a stub
that sleeps in every step, so that its capacity is known and small, and everything around it is the service's own; or it
is the demo's, which shares the machine's processors with those who ask.
"""

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.service_load import LoadSettings, Outcome, answers_per_second, percentiles, send_at_rate
from benchmarks.service_servers import Server, bundle_of, questions, recall_server, stub_server
from recall_service.demo.prepare import prepare_demo
from recall_service.rpc.server import SERVICE_NAME
from recall_service.stubs.recall.v1 import recall_pb2

STEP_SECONDS, BEAM_WIDTH, NUM_AT_ONCE = 0.02, 10, 8
DEADLINE_SECONDS = 0.5
DEMO_DIRECTORY, DEMO_HISTORY_LEN = Path(".demo"), 12
TIMES_CAPACITY = (0.5, 1.0, 2.0, 10.0)
RECOVERY_LOAD, RECOVERY_SECONDS = 0.5, 5.0


def measure(load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Capacity, what becomes of every load, and the figures of the greatest."""
    with tempfile.TemporaryDirectory() as parent:
        directory = bundle_of(BEAM_WIDTH, Path(parent) / "bundle")
        with stub_server(directory, STEP_SECONDS, BEAM_WIDTH * NUM_AT_ONCE) as server:
            searches = [search_of(question) for question in questions()]
            return {"overload": asyncio.run(_measure(server, searches, load, tell))}


def measure_demo(load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """The same of the demo's model, which is trained first unless an earlier run has left it."""
    demo = prepare_demo(DEMO_DIRECTORY)
    histories = np.random.default_rng(0).choice(demo.shop.assortment.item_ids, (64, DEMO_HISTORY_LEN))
    asked = [recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=ids)) for ids in histories.tolist()]
    with recall_server(demo.bundle_directory) as server:
        searches = [search_of(request.SerializeToString()) for request in asked]
        return {"demo": asyncio.run(_measure(server, searches, load, tell))}


async def _measure(
    server: Server, searches: list[bytes], load: LoadSettings, tell: Callable[[str], None]
) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        ask = channel.unary_unary(f"/{SERVICE_NAME}/Recall")
        tell("overload: capacity")
        capacity = await answers_per_second(ask, searches, seconds=load.seconds * 3, concurrency=4 * NUM_AT_ONCE)
        in_time = partial(ask, timeout=DEADLINE_SECONDS)
        loads: dict[str, dict[str, float]] = {}
        rss_before = server.resident_bytes
        for seed, times in enumerate(TIMES_CAPACITY):
            tell(f"overload: {times:g} times {capacity:.0f} calls per second")
            outcomes = await send_at_rate(
                in_time, searches, seconds=load.overload_seconds, rate=times * capacity, seed=seed
            )
            loads[f"{times:g}x"] = summary(outcomes, load.overload_seconds)
        rss_growth = server.resident_bytes / rss_before - 1
        tell("overload: afterwards")
        after = await send_at_rate(
            in_time, searches, seconds=RECOVERY_SECONDS, rate=RECOVERY_LOAD * capacity, seed=len(TIMES_CAPACITY)
        )
    greatest = loads[f"{TIMES_CAPACITY[-1]:g}x"]
    return {
        "capacity_qps": round(capacity, 1),
        "loads": loads,
        "goodput_ratio": round(greatest["good_per_second"] / capacity, 3),
        "reject_p99_ms": greatest["reject_p99_ms"],
        "recovery_seconds": round(recovery_seconds(after, loads[f"{RECOVERY_LOAD:g}x"]["good_p99_ms"]), 2),
        "rss_growth": round(rss_growth, 4),
    }


def search_of(question: bytes) -> bytes:
    """The question, never answered from the cache."""
    request = recall_pb2.RecallRequest.FromString(question)
    request.cache_mode = recall_pb2.CACHE_MODE_BYPASS
    return request.SerializeToString()


def summary(outcomes: list[Outcome], seconds: float) -> dict[str, float]:
    """Shares of the calls, and how long those took that were answered, and those that were refused."""
    taken = {
        code: [outcome.seconds for outcome in outcomes if outcome.code is code]
        for code in {outcome.code for outcome in outcomes}
    }
    good = taken.pop(grpc.StatusCode.OK, [])
    refused = taken.pop(grpc.StatusCode.RESOURCE_EXHAUSTED, [])
    late = taken.pop(grpc.StatusCode.DEADLINE_EXCEEDED, [])
    assert not taken, f"calls ended as {taken.keys()}"
    return {
        "good_per_second": round(len(good) / seconds, 1),
        "good_p99_ms": percentiles(good, 99)[0],
        "refused_share": round(len(refused) / len(outcomes), 3),
        "reject_p99_ms": percentiles(refused, 99)[0],
        "late_share": round(len(late) / len(outcomes), 4),
    }


def recovery_seconds(after: list[Outcome], usual_p99_ms: float) -> float:
    """How long after the load ended a call still failed, or took twice as long as 99 in 100 did before."""
    first = min(outcome.planned for outcome in after)
    odd = (
        outcome.planned - first
        for outcome in after
        if outcome.code is not grpc.StatusCode.OK or outcome.seconds * 1e3 > 2 * usual_p99_ms
    )
    return max(odd, default=0.0)
