"""Cached answers of many items beside an echo of as many bytes: answers per second, and what p99 the answer adds.

Rounds go to one server and the other in turn, so that what else the machine does meets both alike. Throughput is that
of a client that always has calls under way. Latency is at half of the cached answers' throughput, the same for all;
there a third server takes its turn, an echo that is busy for as long as a cached answer costs more than an echo. What
p99 that adds is due to the queue before it and to the machine, and not to what the time is spent on.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from benchmarks.service_load import Ask, Latencies, LoadSettings, answers_per_second, latencies, send_at_rate
from benchmarks.service_servers import NUM_ITEMS, Server, bundle_of, echo_server, questions, recall_server
from recall_service.rpc.server import SERVICE_NAME
from recall_service.stubs.recall.v1 import recall_pb2

RECALL = f"/{SERVICE_NAME}/Recall"


class Throughput(NamedTuple):
    """Of one round: answers per second, and microseconds of the server's processor time for each."""

    per_second: float
    cpu_us: float


def measure(load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """Echo and cached answers: answers per second of each, their ratio, and the latencies at half load."""
    with tempfile.TemporaryDirectory() as parent:
        directory = bundle_of(NUM_ITEMS, Path(parent) / "bundle")
        with recall_server(directory) as cached:
            num_bytes = asyncio.run(_fill_cache(cached.address))
            with echo_server(num_bytes) as echo:
                return asyncio.run(_compare(echo, cached, num_bytes, load, tell)) | {"answer_bytes": num_bytes}


def measure_echo(load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """The echo alone, with answers of a usual size."""
    with echo_server(num_bytes=3_000) as echo:
        return asyncio.run(_measure_echo(echo, load, tell))


async def _measure_echo(echo: Server, load: LoadSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    async with grpc.aio.insecure_channel(echo.address) as channel:
        ask = channel.unary_unary(RECALL)
        tell("echo: as much as it takes")
        rounds = [await _throughput(echo, ask, load) for _ in range(load.rounds)]
    return {"echo_qps": round(statistics.median(found.per_second for found in rounds))}


async def _fill_cache(address: str) -> int:
    """Ask every question, so that the next time it is answered from the cache; returns the size of an answer."""
    async with grpc.aio.insecure_channel(address) as channel:
        ask = channel.unary_unary(RECALL)
        for question in questions():
            await ask(question)
        wire: bytes = await ask(questions()[0])
    answer = recall_pb2.RecallResponse.FromString(wire)
    assert answer.served_from == recall_pb2.SERVED_FROM_LOCAL_CACHE
    assert len(answer.items) == NUM_ITEMS
    return len(wire)


async def _compare(
    echo: Server, cached: Server, num_bytes: int, load: LoadSettings, tell: Callable[[str], None]
) -> dict[str, Any]:
    async with AsyncExitStack() as stack:

        async def connect(server: Server) -> Ask:
            return (await stack.enter_async_context(grpc.aio.insecure_channel(server.address))).unary_unary(RECALL)

        asks = [(server, await connect(server)) for server in (echo, cached)]
        tell("echo and cached: as much as they take")
        full = [[await _throughput(server, ask, load) for server, ask in asks] for _ in range(load.rounds)]
        of_echo, of_cached = (list(rounds) for rounds in zip(*full, strict=True))
        rate = statistics.median(found.per_second for found in of_cached) / 2
        echo_cpu, cached_cpu = (statistics.median(found.cpu_us for found in rounds) for rounds in (of_echo, of_cached))
        busy = stack.enter_context(echo_server(num_bytes, busy_us=cached_cpu - echo_cpu))
        all_asks = [*(ask for _, ask in asks), await connect(busy)]
        tell(f"echo, cached and busy echo: {rate:,.0f} calls per second")
        half = [
            [
                latencies(await send_at_rate(ask, questions(), seconds=load.seconds, rate=rate, seed=seed))
                for ask in all_asks
            ]
            for seed in range(load.rounds)
        ]
    echo_half, cached_half, busy_half = (_medians(list(rounds)) for rounds in zip(*half, strict=True))
    return {
        "echo_qps": round(statistics.median(found.per_second for found in of_echo)),
        "cached_qps": round(statistics.median(found.per_second for found in of_cached)),
        "cached_ratio": round(statistics.median(pair[1].per_second / pair[0].per_second for pair in full), 3),
        "echo_cpu_us": round(echo_cpu, 1),
        "cached_cpu_us": round(cached_cpu, 1),
        "half_load_qps": round(rate),
        "echo_half_load": echo_half._asdict(),
        "cached_half_load": cached_half._asdict(),
        "busy_echo_half_load": busy_half._asdict(),
        "cached_p99_added_ms": round(cached_half.p99_ms - echo_half.p99_ms, 3),
        "busy_p99_added_ms": round(busy_half.p99_ms - echo_half.p99_ms, 3),
    }


async def _throughput(server: Server, ask: Ask, load: LoadSettings) -> Throughput:
    cpu_before = server.cpu_seconds
    per_second = await answers_per_second(ask, questions(), seconds=load.seconds, concurrency=load.concurrency)
    return Throughput(per_second, (server.cpu_seconds - cpu_before) / (per_second * load.seconds) * 1e6)


def _medians(rounds: Sequence[Latencies]) -> Latencies:
    return Latencies(*(round(statistics.median(values), 3) for values in zip(*rounds, strict=True)))
