"""What a run says of itself while it goes on."""

import asyncio
import io

import pytest
from rich.console import Console

from recall_service.replay import progress
from recall_service.replay.outcome import Outcome
from recall_service.replay.progress import showing
from recall_service.replay.totals import RunningTotals


def totals_of(*latencies: float) -> RunningTotals:
    totals = RunningTotals()
    for index, latency in enumerate(latencies):
        totals.sent(index / 10, index / 10)
        done = Outcome(index=index, scene="", intended_seconds=0.0, sent_seconds=0.0, done_seconds=latency, code="OK")
        totals.done(done)
    totals.sent(1.0, 2.0)
    return totals


@pytest.mark.parametrize("is_terminal", [True, False], ids=["table", "lines"])
async def test_what_is_shown(is_terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=160)
    async with showing({"target": totals_of(0.01, 0.02, 0.5), "against": RunningTotals()}, console):
        pass
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("target", "3 OK", "20.09", "3.0", "1.5"):
        assert text in shown
    assert ("no answer yet" in shown) == is_terminal  # a run that has not begun has a row, and no line


async def test_lines_come_now_and_then_and_only_of_what_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.02)
    console = Console(file=io.StringIO())
    totals = totals_of(0.01)
    async with showing({"target": totals}, console):
        await asyncio.sleep(0.2)
    assert console.file.getvalue().count("target, 0 s: 2 sent, 1 in flight") == 1  # type: ignore[attr-defined]


def test_rates_and_percentiles() -> None:
    totals = totals_of(*(index / 1_000 for index in range(1, 101)))
    assert totals.latency_seconds(50) == pytest.approx(0.05, rel=0.01)
    assert totals.latency_seconds(99) == pytest.approx(0.099, rel=0.01)
    assert totals.lag_seconds(99) == pytest.approx(0.0, abs=1e-5)
    assert (totals.num_sent, totals.num_done, totals.num_in_flight) == (101, 100, 1)
    assert (totals.asked_rate, totals.achieved_rate) == (100.0, 50.0)
    assert RunningTotals().asked_rate == RunningTotals().latency_seconds(99) == 0.0
