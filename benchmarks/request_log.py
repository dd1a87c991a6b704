"""What the request log costs: cached answers over loopback, with a log of every recall and without.

One process serves both ways on two ports, and short rounds of load go from one to the other, so that what else the
machine does meets them alike. After a round its records are written before the next begins, and their processor time
is the round's. `cost_share` is by answers per second; `cpu_cost_share` by processor time of the server per answer, the
writer's thread included: the worst case of a machine without a core to spare. Both are medians over pairs of rounds.
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
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.registry import open_registry
from recall_service.stubs.recall.v1 import recall_pb2
from tests.serving.bundles import small_rows, write_bundle

REQUIRED_COST_SHARE = 0.03  # at most
NUM_ITEMS, HISTORY_LEN, NUM_QUESTIONS = 50, 20, 64
SETTLE_SECONDS = WRITE_SECONDS + 0.15


class Round(NamedTuple):
    """Answers per second, and microseconds of the server's processor time for each."""

    per_second: float
    cpu_us: float


class Serving(NamedTuple):
    """The process that serves, and where it does so without and with a log."""

    pid: int
    off: str
    on: str

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


async def serve(bundle: Path, log: Path) -> None:
    """Serve both ways, put together as `recall_service.app` would, until SIGTERM; says the ports."""
    settings = Settings(bundles=(bundle,), request_log_dir=log)
    metrics = Metrics(CollectorRegistry(), settings.scenes)
    registry = open_registry(settings.bundles, "", engine_limits(settings), metrics)
    request_log = open_request_log(settings, metrics)
    pipeline = Pipeline(registry, open_cache(settings, metrics), metrics)
    servers = [
        RecallServer(pipeline, "127.0.0.1:0", observer=metrics, rpc_observer=metrics, recall_log=recall_log)
        for recall_log in (None, request_log)
    ]
    print(json.dumps([await server.start() for server in servers]), flush=True)
    for server in servers:
        await server.mark_serving()
    await servers[0].serve_until_signal()
    await servers[1].stop()
    if request_log is not None:
        request_log.close()
    registry.close()


@contextmanager
def serving(bundle: Path, log: Path) -> Iterator[Serving]:
    """The process, while it lasts."""
    command = [sys.executable, "-m", "benchmarks.request_log", "--serve", str(bundle), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  fixed arguments
        assert process.stdout is not None
        off, on = json.loads(process.stdout.readline())
        yield Serving(process.pid, f"127.0.0.1:{off}", f"127.0.0.1:{on}")
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


async def measure(served: Serving, rounds: int, seconds: float, concurrency: int) -> list[tuple[Round, Round]]:
    """Pairs of rounds, without and with a log; two pairs before them fill the cache and are left out."""
    pairs = []
    for index in range(rounds + 2):
        order = (served.off, served.on) if index % 2 else (served.on, served.off)
        found = {address: await load(served, address, seconds, concurrency) for address in order}
        pairs.append((found[served.off], found[served.on]))
    return pairs[2:]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; the last line of stdout is the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.request_log", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each round")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        asyncio.run(serve(*given.serve))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        bundle, log = write_bundle(Path(directory) / "tiny"), Path(directory) / "log"
        with serving(bundle, log) as served:
            pairs = asyncio.run(measure(served, given.rounds, given.seconds, given.concurrency))
        num_records = sum(1 for _ in read_log(log))
        num_bytes = sum(path.stat().st_size for path in log_files(log))
    off, on = zip(*pairs, strict=True)
    result = {
        "off_qps": round(statistics.median(found.per_second for found in off)),
        "on_qps": round(statistics.median(found.per_second for found in on)),
        "cost_share": round(
            1 - statistics.median(with_log.per_second / without.per_second for without, with_log in pairs), 4
        ),
        "off_cpu_us": round(statistics.median(found.cpu_us for found in off), 1),
        "on_cpu_us": round(statistics.median(found.cpu_us for found in on), 1),
        "cpu_cost_share": round(
            1 - statistics.median(without.cpu_us / with_log.cpu_us for without, with_log in pairs), 4
        ),
        "records": num_records,
        "bytes_per_record": round(num_bytes / num_records, 1),
    }
    table = Table(title="cached answers, and what a log of all of them costs", title_justify="left")
    for heading in ("", "without", "with", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("answers / s", f"{result['off_qps']:,}", f"{result['on_qps']:,}", f"{result['cost_share']:.1%}")
    table.add_row(
        "CPU us / answer", str(result["off_cpu_us"]), str(result["on_cpu_us"]), f"{result['cpu_cost_share']:.1%}"
    )
    Console().print(table)
    print_json_line(
        {
            "benchmark": "request_log",
            **result,
            "required_cost_share": REQUIRED_COST_SHARE,
            "settings": {"rounds": given.rounds, "seconds": given.seconds, "concurrency": given.concurrency},
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
