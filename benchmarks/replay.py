"""Does a replay keep the rate that it was asked for? Against an echo in another process, outcomes written to disk.

`achieved_rate` is what was sent per second from the first question to the last; `lag_p99_ms` how late questions went
out, in milliseconds. Two processes share the machine's cores: the replay, and the echo that answers it.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report import commit, hardware, print_json_line
from recall_service.replay.asked import Asked
from recall_service.replay.clock_loop import run_on_time
from recall_service.replay.grpc_target import GrpcTarget
from recall_service.replay.outcome_file import OutcomeWriter
from recall_service.replay.run import RunSettings, run_replay
from recall_service.replay.schedule import fixed_rate
from recall_service.replay.totals import RunningTotals
from recall_service.stubs.recall.v1 import recall_pb2

REQUIRED_ERROR = 0.01  # of the asked rate, either way
HISTORY_LENGTH = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay for a while; the last line of stdout is the JSON."""
    given = _parser().parse_args(arguments)
    echo = subprocess.Popen([sys.executable, "-m", "benchmarks.replay_echo"], stdout=subprocess.PIPE, text=True)
    try:
        assert echo.stdout is not None
        address = f"127.0.0.1:{int(echo.stdout.readline())}"
        with tempfile.TemporaryDirectory() as directory:
            measured = run_on_time(measure(address, given.rate, given.seconds, Path(directory)))
    finally:
        echo.kill()
        echo.communicate()
    print_table(measured)
    settings = {"seconds": given.seconds, "history": HISTORY_LENGTH, "required_error": REQUIRED_ERROR}
    print_json_line(
        {"benchmark": "replay", **measured, "settings": settings, "hardware": hardware(), "commit": commit()}
    )
    return 0


async def measure(address: str, rate: float, seconds: float, directory: Path) -> dict[str, Any]:
    """Replay `rate` questions a second for `seconds`; the first tenth warms up and is not measured."""
    target, totals = GrpcTarget(address), RunningTotals()
    await target.open()
    with OutcomeWriter(directory / "outcomes.jsonl") as writer:
        ending = await run_replay(
            fixed_rate(rate)(questions(int(rate * seconds))),
            target,
            writer.write,
            RunSettings(warm_up_seconds=seconds / 10),
            totals,
            asyncio.Event(),
        )
    await target.close()
    assert ending.is_complete, ending.failure
    return {
        "asked_rate": rate,
        "achieved_rate": totals.achieved_rate,
        "lag_p50_ms": totals.lag_seconds(50) * 1000,
        "lag_p99_ms": totals.lag_seconds(99) * 1000,
        "latency_p50_ms": totals.latency_seconds(50) * 1000,
        "latency_p99_ms": totals.latency_seconds(99) * 1000,
        "errors": totals.num_done - totals.codes["OK"],
    }


def questions(number: int) -> Iterator[Asked]:
    """As a log would give them; every user has another history."""
    for index in range(number):
        history = recall_pb2.ItemHistory(
            item_ids=[f"B{(index * 31 + age) % 100_003:09d}" for age in range(HISTORY_LENGTH)]
        )
        yield Asked(index=index, request=recall_pb2.RecallRequest(history=history, scene="feed"), arrival_seconds=0.0)


def print_table(measured: dict[str, Any]) -> None:
    """For people, on stdout."""
    table = Table(title="replay against an echo")
    for name, value in measured.items():
        table.add_column(name.replace("_", " "), justify="right")
        del value
    table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in measured.values()))
    Console().print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--rate", type=float, default=2_000.0, help="questions per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to replay")
    return parser


if __name__ == "__main__":
    sys.exit(main())
