"""What the request log costs: cached answers over loopback without a log, with the default share of them, with all.

One process serves every way on a port of its own, and short rounds of load go from one to the next, so that what else
the machine does meets them alike. After a round its records are written before the next begins, and their processor
time is the round's. `cost_share` is by answers per second; `cpu_cost_share` by processor time of the server per answer,
the writer's thread included: the worst case of a machine without a core to spare. Both are medians over rounds.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table

from benchmarks.report import commit, hardware, print_json_line
from recall_service.app import engine_limits, open_cache, open_request_log
from recall_service.config import Settings
from recall_service.observability.metrics import Metrics
from recall_service.request_log.files import log_files
from recall_service.request_log.reader import read_log
from recall_service.request_log.writer import WRITE_SECONDS
from recall_service.rpc.server import SERVICE_NAME, RecallServer
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.pipeline import Pipeline
from recall_service.stubs.recall.v1 import recall_pb2
from tests.serving.bundles import small_rows, write_bundle

REQUIRED_COST_SHARE = 0.03  # at most
NUM_ITEMS, HISTORY_LEN, NUM_QUESTIONS = 50, 20, 64
SETTLE_SECONDS = WRITE_SECONDS + 0.15

OFF, DEFAULT, ALL = "off", "on", "all"
SHARES = {OFF: None, DEFAULT: Settings.model_fields["request_log_sample"].default, ALL: 1.0}


class Round(NamedTuple):
    """Answers per second, and microseconds of the server's processor time for each."""

    per_second: float
    cpu_us: float


class Serving(NamedTuple):
    """The process that serves. addresses: by the way it logs there."""

    pid: int
    addresses: dict[str, str]

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def serve(bundle: Path, directory: Path) -> None:
    """Serve every way, put together as `recall_service.app` would, until SIGTERM; says the ports."""
    settings = Settings(bundles=(bundle,))
    metrics = Metrics(CollectorRegistry(), settings.scenes)
    launch = Launch(engine_limits(settings), metrics, settings.filter_cache_bytes)
    registry = open_registry(settings.bundles, "", launch)
    pipeline = Pipeline(registry, open_cache(settings, metrics), metrics)
    servers = {}
    for name, share in SHARES.items():
        logs = {} if share is None else {"request_log_dir": directory / name, "request_log_sample": share}
        request_log = open_request_log(Settings(**logs), metrics)
        servers[name] = RecallServer(
            pipeline, "127.0.0.1:0", observer=metrics, rpc_observer=metrics, recall_log=request_log
        )
    print(json.dumps({name: await server.start() for name, server in servers.items()}), flush=True)
    for server in servers.values():
        await server.mark_serving()
    await servers.pop(OFF).serve_until_signal()
    for server in servers.values():
        await server.stop()
    registry.close()


@contextmanager
def serving(bundle: Path, directory: Path) -> Iterator[Serving]:
    """The process, while it lasts."""
    command = [sys.executable, "-m", "benchmarks.request_log", "--serve", str(bundle), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  fixed arguments
        assert process.stdout is not None
        ports = json.loads(process.stdout.readline())
        yield Serving(process.pid, {name: f"127.0.0.1:{port}" for name, port in ports.items()})
        process.terminate()


def questions() -> list[bytes]:
    """Requests of different histories, serialised, so that asking costs the client little."""
    _, item_ids = small_rows()
    chance = random.Random(0)  # noqa: S311
    requests = (
        recall_pb2.RecallRequest(
            history=recall_pb2.ItemHistory(item_ids=chance.choices(item_ids, k=HISTORY_LEN)),
            num_items=NUM_ITEMS,
            beam_width=64,
            scene="feed",
            user_id=f"user-{number}",
        )
        for number in range(NUM_QUESTIONS)
    )
    return [request.SerializeToString() for request in requests]


async def load(served: Serving, address: str, seconds: float, concurrency: int) -> Round:
    """Ask for so long, so many at a time; then wait until what is to be logged is."""
    async with grpc.aio.insecure_channel(address) as channel:
        ask, asked = channel.unary_unary(f"/{SERVICE_NAME}/Recall"), itertools.cycle(questions())
        await ask(next(asked), wait_for_ready=True)
        started, cpu_started, num_answers = time.perf_counter(), served.cpu_seconds(), 0

        async def keep_asking() -> None:
            nonlocal num_answers
            while time.perf_counter() < started + seconds:
                await ask(next(asked))
                num_answers += 1

        await asyncio.gather(*(keep_asking() for _ in range(concurrency)))
        elapsed = time.perf_counter() - started
        await asyncio.sleep(SETTLE_SECONDS)
        return Round(num_answers / elapsed, (served.cpu_seconds() - cpu_started) / num_answers * 1e6)


async def measure(served: Serving, rounds: int, seconds: float, concurrency: int) -> dict[str, list[Round]]:
    """The rounds of every way; two before them fill the cache and are left out."""
    measured: dict[str, list[Round]] = {name: [] for name in SHARES}
    chance = random.Random(0)  # noqa: S311
    for _ in range(rounds + 2):
        for name in chance.sample(list(SHARES), len(SHARES)):
            measured[name].append(await load(served, served.addresses[name], seconds, concurrency))
    return {name: found[2:] for name, found in measured.items()}


def compared(found: Sequence[Round], without: Sequence[Round]) -> dict[str, float]:
    """Medians, and what they cost beside rounds without a log."""
    pairs = list(zip(found, without, strict=True))
    return {
        "qps": round(statistics.median(own.per_second for own in found)),
        "cpu_us": round(statistics.median(own.cpu_us for own in found), 1),
        "cost_share": round(1 - statistics.median(own.per_second / other.per_second for own, other in pairs), 4),
        "cpu_cost_share": round(1 - statistics.median(other.cpu_us / own.cpu_us for own, other in pairs), 4),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the last line of stdout is the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_log", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each round")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        asyncio.run(serve(*given.serve))
        return 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with serving(write_bundle(directory / "tiny"), directory) as served:
            measured = asyncio.run(measure(served, given.rounds, given.seconds, given.concurrency))
        num_records = sum(1 for _ in read_log(directory / ALL))
        num_bytes = sum(path.stat().st_size for path in log_files(directory / ALL))
    results = {name: compared(found, measured[OFF]) for name, found in measured.items()}
    table = Table(title="cached answers, and what logging costs them", title_justify="left")
    for heading in ("share logged", "answers / s", "cost", "CPU us / answer", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, result in results.items():
        costs = [f"{result[cost]:.1%}" for cost in ("cost_share", "cpu_cost_share")]
        table.add_row(f"{SHARES[name] or 0:.0%}", f"{result['qps']:,}", costs[0], str(result["cpu_us"]), costs[1])
    Console().print(table)
    print_json_line(
        {
            "benchmark": "request_log",
            "off_qps": results[OFF]["qps"],
            "on_qps": results[DEFAULT]["qps"],
            "cost_share": results[DEFAULT]["cost_share"],
            "required_cost_share": REQUIRED_COST_SHARE,
            "bytes_per_record": round(num_bytes / num_records, 1),
            "results": {name: {"share": SHARES[name], **result} for name, result in results.items()},
            "settings": {"rounds": given.rounds, "seconds": given.seconds, "concurrency": given.concurrency},
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
