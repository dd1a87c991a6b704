"""A plan on one target or two, from opening them to their outcomes on disk; or on one at a series of rates."""

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from rich.console import Console

from recall_service.errors import ReplayError
from recall_service.replay.asked import Asked
from recall_service.replay.judging.summary import Summary, summarise
from recall_service.replay.judging.sweep import Sweep, sweep
from recall_service.replay.outcome import Outcome
from recall_service.replay.outcome_file import OutcomeWriter
from recall_service.replay.plan import Plan
from recall_service.replay.progress import showing
from recall_service.replay.run import Ending, RunSettings, run_replay
from recall_service.replay.schedule import Scheduled, poisson
from recall_service.replay.target import Target
from recall_service.replay.totals import RunningTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One run: what answered, in words; its outcomes on disk; what to know of how they came about.

    failures: why it, or some part of it, ended before its time. num_given_up: calls in flight then, of no outcome.
    num_waited_for_room: questions that were held back by the cap on calls in flight.
    """

    described: str
    outcomes: Path
    failures: tuple[str, ...]
    num_done: int
    num_given_up: int
    num_waited_for_room: int


async def record_runs(
    plan: Plan, targets: Mapping[str, Target], out: Path, console: Console, *, at_once: bool
) -> dict[str, Recorded]:
    """Run the plan on every target, one after another or all at once; outcomes go to `out`/NAME.jsonl.

    SIGINT and SIGTERM end what is under way; runs that were not begun then are left out.
    Raises SetupError when a target or the source is not fit, before anything is asked.
    """
    totals = {name: RunningTotals() for name in targets}
    scheduled = {name: plan.scheduled() for name in targets}
    recorded: dict[str, Recorded] = {}
    async with AsyncExitStack() as stack:
        described = {name: await _opened(target, stack) for name, target in targets.items()}
        with _stop_on_signals() as stop:
            await stack.enter_async_context(showing(totals, console))

            async def run(name: str) -> None:
                path = out / f"{name}.jsonl"
                ending = await _record(scheduled[name], targets[name], path, plan.settings, totals[name], stop)
                recorded[name] = Recorded(
                    described=described[name],
                    outcomes=path,
                    failures=(ending.failure,) if ending.failure else (),
                    num_done=totals[name].num_done,
                    num_given_up=ending.num_given_up,
                    num_waited_for_room=totals[name].num_waited_for_room,
                )

            if at_once:
                await asyncio.gather(*map(run, targets))
            else:
                for name in targets:
                    if not stop.is_set():
                        await run(name)
    return recorded


async def record_sweep(
    plan: Plan,
    target: Target,
    rates: Sequence[float],
    out: Path,
    console: Console,
    *,
    seconds: float,
    slo_seconds: float,
) -> tuple[str, Sweep, str]:
    """Run the target at ascending rates, Poisson arrivals, each for so long, until it no longer keeps up.

    Every rate has the questions that follow the last rate's, from the beginning again when there are no more.
    Returns what answered, what was found, and why it ended before its time; empty when it did not.
    """
    questions = _endless(plan)
    finished: dict[float, Summary] = {}
    async with AsyncExitStack() as stack:
        described = await _opened(target, stack)
        with _stop_on_signals() as stop:

            async def run(rate: float) -> Summary:
                path, totals = out / f"rate-{rate:g}.jsonl", RunningTotals()
                scheduled = poisson(rate, plan.seed)(islice(questions, max(1, round(rate * seconds))))
                async with showing({f"{rate:g} per second": totals}, console):
                    ending = await _record(scheduled, target, path, plan.settings, totals, stop)
                if not ending.is_complete:
                    raise ReplayError(ending.failure)
                finished[rate] = summarise_file(path, slo_seconds)
                return finished[rate]

            try:
                return described, await sweep(run, rates, slo_seconds=slo_seconds), ""
            except ReplayError as error:
                return described, await _sweep_of(finished, slo_seconds), str(error)


async def _opened(target: Target, stack: AsyncExitStack) -> str:
    described = await target.open()
    stack.push_async_callback(target.close)
    return described


async def _record(
    scheduled: Iterator[Scheduled],
    target: Target,
    path: Path,
    settings: RunSettings,
    totals: RunningTotals,
    stop: asyncio.Event,
) -> Ending:
    writer = OutcomeWriter(path)
    ending: Ending | None = None
    try:
        with writer:
            ending = await run_replay(scheduled, target, writer.write, settings, totals, stop)
    except ReplayError as error:
        if ending is None:
            raise
        return replace(ending, failure=ending.failure or str(error))
    return ending


def _endless(plan: Plan) -> Iterator[Asked]:
    """Raises ReplayError when there is not one question to begin with."""
    first = list(islice(plan.questions(), 1))
    if not first:
        raise ReplayError("the source, or the sample of it, holds no question; give another, or a larger share")
    return chain.from_iterable(iter(plan.questions, None))


def summarise_file(path: Path, slo_seconds: float | None) -> Summary:
    """The summary of the outcomes that a run wrote."""
    with path.open("rb") as lines:
        return summarise(map(Outcome.from_json, lines), slo_seconds=slo_seconds)


async def _sweep_of(finished: Mapping[float, Summary], slo_seconds: float) -> Sweep:
    """What a sweep that was cut short had found."""

    async def known(rate: float) -> Summary:
        return finished[rate]

    return await sweep(known, list(finished), slo_seconds=slo_seconds)


@contextmanager
def _stop_on_signals() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one ends the process as if nothing was caught."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    caught = (signal.SIGINT, signal.SIGTERM)

    def let_go() -> None:
        for number in caught:
            loop.remove_signal_handler(number)

    def on_signal() -> None:
        stop.set()
        let_go()

    for number in caught:
        loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        let_go()
