"""What runs are doing, on stderr while they go on: a small table on a terminal, a line now and then elsewhere."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from recall_service.replay.totals import RunningTotals

_TABLE_SECONDS = 1.0  # drawing takes a few milliseconds, which questions wait for
_LINE_SECONDS = 10.0


@asynccontextmanager
async def showing(runs: Mapping[str, RunningTotals], console: Console) -> AsyncIterator[None]:
    """Show the totals of runs by their names as they change, and once more in the end."""
    started = time.monotonic()
    if console.is_terminal:
        with Live(_table(runs, started), console=console, auto_refresh=False) as live:
            async with _repeating(lambda: live.update(_table(runs, started), refresh=True), _TABLE_SECONDS):
                yield
    else:
        told: dict[str, int] = {}
        async with _repeating(lambda: _print_lines(runs, told, console, started), _LINE_SECONDS):
            yield


@asynccontextmanager
async def _repeating(show: Callable[[], None], every_seconds: float) -> AsyncIterator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_seconds)
            show()

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        show()


def _print_lines(runs: Mapping[str, RunningTotals], told: dict[str, int], console: Console, started: float) -> None:
    """A line for every run that has gone on since `told` was how much of it was done."""
    for name, totals in runs.items():
        if totals.num_done > told.get(name, 0):
            told[name] = totals.num_done
            p50, p90, p99 = _latencies(totals)
            console.print(
                f"{name}, {time.monotonic() - started:.0f} s: {totals.num_sent:,} sent, {totals.num_in_flight:,} in "
                f"flight, {totals.asked_rate:,.1f}/s asked, {totals.achieved_rate:,.1f}/s achieved, latency p50 {p50} "
                f"p90 {p90} p99 {p99} ms, lag p99 {_lag(totals)} ms, {_codes(totals)}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )


def _table(runs: Mapping[str, RunningTotals], started: float) -> Table:
    table = Table(title=f"replay, {time.monotonic() - started:.0f} s", title_justify="left")
    table.add_column("run")
    for heading in ("sent", "in flight", "asked/s", "achieved/s", "p50 ms", "p90 ms", "p99 ms", "lag p99 ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("answers")
    for name, totals in runs.items():
        table.add_row(
            name,
            f"{totals.num_sent:,}",
            f"{totals.num_in_flight:,}",
            f"{totals.asked_rate:,.1f}",
            f"{totals.achieved_rate:,.1f}",
            *_latencies(totals),
            _lag(totals),
            _codes(totals),
        )
    return table


def _latencies(totals: RunningTotals) -> tuple[str, ...]:
    return tuple(f"{1000 * totals.latency_seconds(percentile):.2f}" for percentile in (50, 90, 99))


def _lag(totals: RunningTotals) -> str:
    return f"{1000 * totals.lag_seconds(99):.2f}"


def _codes(totals: RunningTotals) -> str:
    return ", ".join(f"{number:,} {code}" for code, number in sorted(totals.codes.items())) or "no answer yet"
