"""The replays that the command line offers, each from a plan to figures, files and an exit code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from recall_service.errors import ReplayError
from recall_service.replay.clock_loop import run_on_time
from recall_service.replay.judging.analysis import AGAINST, TARGET, analyse
from recall_service.replay.judging.gate import Threshold
from recall_service.replay.plan import Plan
from recall_service.replay.report.writer import LOG, REFERENCE, write_sweep_report
from recall_service.replay.schedule import Schedule
from recall_service.replay.session import Recorded, record_runs, record_sweep, summarise_file
from recall_service.replay.spread import Spreading, record_spread
from recall_service.replay.target import Target
from recall_service.replay.telling import analysis_lines, run_lines, run_warnings

MakeTarget = Callable[[], Target]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What runs are judged by, and what the report is to tell of them. against_logged: compare with logged answers."""

    title: str
    facts: Mapping[str, str]
    slo_seconds: float | None
    gate: tuple[Threshold, ...]
    against_logged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a command came to: one JSON document, lines for people, warnings for them, and an exit code."""

    document: dict[str, Any]
    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    exit_code: int


def replay_targets(
    plan: Plan, targets: Mapping[str, MakeTarget], judging: Judging, out: Path, console: Console, *, at_once: bool
) -> Result:
    """Run the plan on `target`, and on `against` where there is one, and compare. Raises SetupError."""
    opened = {name: make() for name, make in targets.items()}
    runs = run_on_time(record_runs(plan, opened, out, console, at_once=at_once))
    return _judge(plan, runs, judging, out)


def replay_spread(
    plan: Plan,
    targets: Mapping[str, MakeTarget],
    schedule_of_part: Callable[[int, int], Schedule],
    judging: Judging,
    out: Path,
    num_actors: int,
) -> Result:
    """The same with the source's files side by side on a Ray cluster, one target after another. Raises SetupError.

    schedule_of_part: from how many files are replayed at once, and the number of one of them.
    """
    runs = {}
    num_side_by_side = min(num_actors, len(plan.source.files))
    for name, make_target in targets.items():
        spreading = Spreading(
            make_target=make_target,
            schedule_of=partial(schedule_of_part, num_side_by_side),
            settings=plan.settings,
            share=plan.share,
            seed=plan.seed,
            skips_damaged=plan.source.on_damage is not None,
        )
        runs[name] = record_spread(plan.source, spreading, out / f"{name}.jsonl", num_actors)
    return _judge(plan, runs, judging, out)


def find_knee(
    plan: Plan,
    make_target: MakeTarget,
    rates: Sequence[float],
    judging: Judging,
    out: Path,
    console: Console,
    *,
    seconds: float,
) -> Result:
    """Run the target at one rate after another, each for so many seconds; needs an SLO. Raises SetupError."""
    slo_seconds = judging.slo_seconds
    assert slo_seconds is not None
    described, sweep, failure = run_on_time(
        record_sweep(plan, make_target(), rates, out, console, seconds=seconds, slo_seconds=slo_seconds)
    )
    facts = {**judging.facts, "target": described}
    write_sweep_report(out / "report.html", title=judging.title, sweep=sweep, settings=facts)
    runs = [line for point in sweep.points for line in run_lines(f"{point.rate:g} per second", point.summary)]
    return Result(
        document={"title": judging.title, "failure": failure, **sweep.to_json()},
        lines=(*runs, sweep.sentence, f"report: {out / 'report.html'}"),
        warnings=(f"ended early: {failure}",) if failure else (),
        exit_code=int(bool(failure)),
    )


def _judge(plan: Plan, runs: Mapping[str, Recorded], judging: Judging, out: Path) -> Result:
    against = runs[AGAINST].outcomes if AGAINST in runs else None
    warnings = tuple(run_warnings(runs, plan.settings.max_in_flight))
    failures = [failure for run in runs.values() for failure in run.failures]
    try:
        analysis = analyse(
            asked=plan.source.questions(),
            outcomes=runs[TARGET].outcomes,
            against=against,
            against_logged=judging.against_logged,
            slo_seconds=judging.slo_seconds,
            gate=judging.gate,
            title=judging.title,
            settings={**judging.facts, **{name: run.described for name, run in runs.items()}},
            out=out,
        )
    except ReplayError as error:
        if not failures:
            raise
        return _figures_alone(runs, judging, (*warnings, str(error)), failures)
    reference = LOG if against is None else REFERENCE
    return Result(
        document={**analysis.to_json(), "failures": failures, "out": str(out)},
        lines=(*analysis_lines(analysis, reference), f"report: {out / 'report.html'}"),
        warnings=warnings,
        exit_code=max(analysis.exit_code, int(bool(failures))),
    )


def _figures_alone(
    runs: Mapping[str, Recorded], judging: Judging, warnings: tuple[str, ...], failures: list[str]
) -> Result:
    """What was measured before a run ended early, where no more can be made of it, as on a disk that is full."""
    summaries = {name: summarise_file(run.outcomes, judging.slo_seconds) for name, run in runs.items()}
    return Result(
        document={
            "title": judging.title,
            "failures": failures,
            **{name: summary.to_json() for name, summary in summaries.items()},
        },
        lines=tuple(line for name, summary in summaries.items() for line in run_lines(name, summary)),
        warnings=warnings,
        exit_code=1,
    )
