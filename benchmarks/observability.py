"""What being watched costs: cached answers over loopback with nobody listening, and with metrics, call logs and traces.

Two ways to be watched are compared as two servers on two ports of one process, so that they differ in nothing else;
short rounds of load go to one and the other in an order of chance, so that what else the machine does meets them alike.
First of all nobody is compared to nobody: what that is off by, the others may be off by. Two figures for each: answers
per second, and processor time of the server per answer. The second is the one to trust where the client, or something
else on the machine, limits the first; its inverse is the throughput of a server that has a core for itself.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table

from benchmarks.report import commit, hardware, print_json_line
from recall_service.app import engine_limits, open_cache, open_tracing
from recall_service.config import Settings
from recall_service.observability.call_log import CallLog
from recall_service.observability.logging import configure_logging
from recall_service.observability.metrics import Metrics
from recall_service.rpc.server import SERVICE_NAME, RecallServer
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.hooks import NullObserver
from recall_service.serving.pipeline import Pipeline
from recall_service.stubs.recall.v1 import recall_pb2
from tests.observability.collector import collector
from tests.serving.bundles import small_rows, write_bundle

NUM_ITEMS, HISTORY_LEN = 50, 20
WARM_UP_SECONDS = 0.5
SETTLE_SECONDS = 0.03  # between two rounds, for what the one before left to be sent

Ask = Callable[[bytes], Awaitable[bytes]]


class Watched(NamedTuple):
    """One way to be watched."""

    has_metrics: bool = True
    call_log_sample: float | None = None
    trace_sample: float | None = None


NOBODY, METRICS = Watched(has_metrics=False), Watched()
PAIRS = {
    "nobody": (NOBODY, NOBODY),
    "metrics": (NOBODY, METRICS),
    "call log of 1 %": (METRICS, Watched(call_log_sample=0.01)),
    "call log of all": (METRICS, Watched(call_log_sample=1.0)),
    "traces of 1 %": (METRICS, Watched(trace_sample=0.01)),
    "traces of all": (METRICS, Watched(trace_sample=1.0)),
}


class Round(NamedTuple):
    """Answers per second, and microseconds of the server's processor time for each."""

    per_second: float
    cpu_us: float


class Servers(NamedTuple):
    """A process of two servers."""

    pid: int
    addresses: list[str]

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def serve(pair: str, directory: Path, collector_url: str) -> None:
    """Serve in both ways of a pair, until SIGTERM; says the ports once both are open."""
    configure_logging("info", "json")
    settings = Settings(bundles=(directory,))
    launch = Launch(engine_limits(settings), NullObserver(), settings.filter_cache_bytes)
    registry = open_registry(settings.bundles, "", launch)
    servers = [make_server(way, registry, collector_url) for way in PAIRS[pair]]
    ports = [await server.start() for server in servers]
    for server in servers:
        await server.mark_serving()
    print(json.dumps(ports), flush=True)
    await asyncio.gather(*(server.serve_until_signal() for server in servers))
    registry.close()


def make_server(way: Watched, registry: Registry, collector_url: str) -> RecallServer:
    """A server with a cache of its own, put together as `recall_service.app` would, but for who watches."""
    endpoint = None if way.trace_sample is None else collector_url
    settings = Settings(otlp_endpoint=endpoint, trace_sample=way.trace_sample or 0.0)
    tracing = open_tracing(settings)
    metrics = Metrics(CollectorRegistry(), settings.scenes, tracing.trace_id if tracing else None)
    observer = metrics if way.has_metrics else NullObserver()
    return RecallServer(
        Pipeline(registry, open_cache(settings, observer), observer, tracing),
        "127.0.0.1:0",
        observer=observer,
        rpc_observer=metrics if way.has_metrics else None,
        call_log=None if way.call_log_sample is None else CallLog(way.call_log_sample, settings.scenes),
        tracer=tracing,
    )


@contextmanager
def serving(pair: str, directory: Path, collector_url: str) -> Iterator[Servers]:
    """The process of a pair's servers, while it lasts."""
    command = [sys.executable, "-m", "benchmarks.observability", "--serve", pair, str(directory), collector_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        try:
            yield Servers(process.pid, [f"127.0.0.1:{port}" for port in ports])
        finally:
            process.kill()  # it has nothing to lose, and both servers would want the one signal to end


async def load(servers: Servers, ask: Ask, question: bytes, seconds: float, concurrency: int) -> Round:
    """Ask the same question again and again, so many at a time."""
    started, cpu_started, num_answers = time.perf_counter(), servers.cpu_seconds(), 0

    async def keep_asking() -> None:
        nonlocal num_answers
        while time.perf_counter() < started + seconds:
            await ask(question)
            num_answers += 1

    await asyncio.gather(*(keep_asking() for _ in range(concurrency)))
    elapsed, cpu = time.perf_counter() - started, servers.cpu_seconds() - cpu_started
    return Round(num_answers / elapsed, cpu / num_answers * 1e6)


async def compare(servers: Servers, rounds: int, seconds: float, concurrency: int) -> list[list[Round]]:
    """The rounds of each server, after a warm-up."""
    _, item_ids = small_rows()
    history = recall_pb2.ItemHistory(item_ids=(item_ids * 2)[:HISTORY_LEN])
    question = recall_pb2.RecallRequest(
        history=history, num_items=NUM_ITEMS, beam_width=64, scene="feed", user_id="user-1"
    ).SerializeToString()
    measured: list[list[Round]] = [[] for _ in servers.addresses]
    async with AsyncExitStack() as stack:
        asks: list[Ask] = []
        for address in servers.addresses:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
            asks.append(channel.unary_unary(f"/{SERVICE_NAME}/Recall"))  # bytes: the client is to cost little
            answer = recall_pb2.RecallResponse.FromString(await asks[-1](question))
            assert len(answer.items) == NUM_ITEMS
            await load(servers, asks[-1], question, WARM_UP_SECONDS, concurrency)
        chance = random.Random(0)  # noqa: S311
        for _ in range(rounds):
            for index in chance.sample(range(len(asks)), len(asks)):
                await asyncio.sleep(SETTLE_SECONDS)
                measured[index].append(await load(servers, asks[index], question, seconds, concurrency))
    return measured


def summary(beside: Sequence[Round], own: Sequence[Round]) -> dict[str, float]:
    """Medians over the rounds, and how much of the throughput is left: medians of the ratios of neighbouring rounds."""
    pairs = list(zip(beside, own, strict=True))
    return {
        "per_second": round(statistics.median(found.per_second for found in own)),
        "cpu_us": round(statistics.median(found.cpu_us for found in own), 1),
        "left_by_per_second": round(statistics.median(one.per_second / other.per_second for other, one in pairs), 4),
        "left_by_cpu": round(statistics.median(other.cpu_us / one.cpu_us for other, one in pairs), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and the same as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each round")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--serve", nargs=3, metavar=("PAIR", "DIR", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        pair, directory, collector_url = given.serve
        asyncio.run(serve(pair, Path(directory), collector_url))
        return
    configuration = {name: getattr(given, name) for name in ("rounds", "seconds", "concurrency")}
    results = {}
    with tempfile.TemporaryDirectory() as parent, collector() as received:
        directory = write_bundle(Path(parent) / "tiny")
        for pair in PAIRS:
            with serving(pair, directory, received.url) as servers:
                results[pair] = summary(*asyncio.run(compare(servers, **configuration)))
    table = Table(title="Cached answers over loopback", title_justify="left")
    table.add_column("watched by")
    for heading in ("beside", "answers / s", "CPU µs / answer", "left, by answers / s", "left, by CPU"):
        table.add_column(heading, justify="right")
    for pair, found in results.items():
        per_second, cpu_us, *left = found.values()
        beside = "nobody" if PAIRS[pair][0] is NOBODY else "metrics"
        table.add_row(pair, beside, f"{per_second:,.0f}", f"{cpu_us:.0f}", *(f"{share:.1%}" for share in left))
    Console().print(table)
    print_json_line(
        {"benchmark": "observability", "hardware": hardware(), "commit": commit(), **configuration, "results": results}
    )


if __name__ == "__main__":
    main()
