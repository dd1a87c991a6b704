"""recall-service replay: ask recorded questions again, and compare what comes of them.

Figures go to stdout, progress and warnings to stderr. What is not fit to replay is one line on stderr and exit code 2;
a gate that fails, or a replay that ended early, exit code 1.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recall_service.access_flags import TlsCa, TlsCertificate, TlsKey, TokenFile, read_access
from recall_service.errors import SettingsError
from recall_service.terminal import one_line_errors

if TYPE_CHECKING:  # whoever only asks for help does not wait for it
    from recall_service.replay.command import Result

_Share = Annotated[float, typer.Option(min=0, max=1, help="Share of the questions to ask, at random.")]
_Rate = Annotated[float | None, typer.Option(min=1e-3, help="Questions per second, evenly spaced.")]
_Poisson = Annotated[float | None, typer.Option(min=1e-3, help="Questions per second, as independent users ask.")]
_Speed = Annotated[float | None, typer.Option(min=1e-6, help="As recorded, so many times as fast; by default once.")]
_Timeout = Annotated[float | None, typer.Option(min=1e-3, help="Seconds; by default the source's deadlines, else 5.")]
_Slo = Annotated[float | None, typer.Option(metavar="MS", min=1e-3, help="Milliseconds that a good answer may take.")]
_Require = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="As in min_overlap@10=0.95; repeatable.")
]


def replay(
    source: Annotated[Path, typer.Argument(help="Request log, .parquet or .jsonl: a file, or a directory of them.")],
    target: Annotated[str | None, typer.Option(help="Server to ask, as host:port.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="Bundle to ask in this process, without a server.")] = None,
    against: Annotated[str | None, typer.Option(help='Compare with host:port, a bundle, or "logged" answers.')] = None,
    at_once: Annotated[bool, typer.Option("--at-once", help="Ask both targets at the same time.")] = False,
    rate: _Rate = None,
    poisson: _Poisson = None,
    speed: _Speed = None,
    fast: Annotated[bool, typer.Option("--fast", help="As fast as --concurrency allows.")] = False,
    sweep: Annotated[str | None, typer.Option(metavar="RATES", help="Find the knee: 100,200 or 100:1600:2.")] = None,
    sweep_seconds: Annotated[float, typer.Option(min=0.1, help="How long a sweep stays at a rate.")] = 20.0,
    sample: _Share = 1.0,
    seed: Annotated[int, typer.Option(help="Of all that is left to chance.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask the first so many questions.")] = None,
    warm_up: Annotated[str, typer.Option(metavar="SECONDS", help="What no figure counts; or a share, as 5%.")] = "0",
    concurrency: Annotated[int, typer.Option(min=1, help="Most calls in flight.")] = 1_000,
    cancel: Annotated[float, typer.Option(min=0, max=1, help="Share of calls to give up, at random.")] = 0.0,
    timeout: _Timeout = None,
    slo: _Slo = None,
    gate: Annotated[Path | None, typer.Option(help="TOML file of thresholds.")] = None,
    require: _Require = None,
    spread: Annotated[int | None, typer.Option(min=1, help="So many Ray actors, files side by side.")] = None,
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
    skip_damaged: Annotated[bool, typer.Option("--skip-damaged", help="Leave out what cannot be read.")] = False,
    out: Annotated[Path | None, typer.Option(help="Directory for outcomes, summary.json, report.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Ask recorded questions again, and compare what comes of them."""
    from rich.console import Console

    from recall_service.replay import command, options
    from recall_service.replay.judging.gate import parse_threshold, read_gate
    from recall_service.replay.judging.sweep import parse_rates
    from recall_service.replay.plan import Plan
    from recall_service.replay.run import RunSettings
    from recall_service.replay.sources import open_source

    with one_line_errors():
        access = read_access(tls_ca, tls_certificate, tls_key, token_file)
        targets = options.targets(target, bundle, against, access)
        timing = options.Timing(rate=rate, poisson=poisson, speed=speed, fast=fast, seed=seed)
        thresholds = (*(read_gate(gate) if gate else ()), *map(parse_threshold, require or ()))
        rates = parse_rates(sweep) if sweep is not None else ()
        _check_together(timing.flags, against, slo, limit, thresholds, spread=spread, sweep=sweep)
        plan = Plan(
            source=open_source(source, _once(_tell) if skip_damaged else None),
            schedule=timing.schedule,
            settings=RunSettings(max_in_flight=concurrency, timeout_seconds=timeout, cancel_share=cancel, seed=seed),
            share=sample,
            seed=seed,
            limit=limit,
        )
        plan = options.with_warm_up(plan, warm_up, can_count=not (rates or spread))
        judging = command.Judging(
            title=f"Replay of {source.name}",
            facts={
                "source": str(source),
                "timing": f"{sweep} per second, {sweep_seconds:g} s each" if rates else timing.words,
                "sample": f"{sample:g} of the questions{'' if limit is None else f', first {limit:,}'}, seed {seed}",
                "warm-up": f"{warm_up} s".replace("% s", " %"),
                "cancelled": f"{cancel:g} of the calls",
                "most calls in flight": f"{concurrency:,}",
            },
            slo_seconds=None if slo is None else slo / 1000,
            gate=thresholds,
            against_logged=against == options.LOGGED,
        )
        directory, console = out or options.new_directory(), Console(stderr=True)
        if rates:
            result = command.find_knee(
                plan, targets["target"], rates, judging, directory, console, seconds=sweep_seconds
            )
        elif spread is not None:
            result = command.replay_spread(plan, targets, timing.of_part, judging, directory, spread)
        else:
            result = command.replay_targets(plan, targets, judging, directory, console, at_once=at_once)
    _print(result, as_json=as_json)
    raise typer.Exit(result.exit_code)


def _check_together(
    timing: Sequence[str],
    against: str | None,
    slo: float | None,
    limit: int | None,
    thresholds: Sequence[object],
    *,
    spread: int | None,
    sweep: str | None,
) -> None:
    """Raises SettingsError for options that contradict each other, or lack one that they need."""
    if sweep is not None:
        others = [*timing, *(["--against"] if against else []), *(["--gate or --require"] if thresholds else [])]
        others += ["--spread"] if spread else []
        if others:
            raise SettingsError(f"--sweep and {others[0]} contradict each other; give one of them")
        if slo is None:
            raise SettingsError("--sweep: needs --slo, for a rate counts as sustained when answers keep to it")
    if spread is not None:
        if limit is not None:
            raise SettingsError("--spread and --limit contradict each other; give --sample in place of --limit")
        if not {"--rate", "--poisson", "--fast"} & set(timing):
            raise SettingsError("--spread: files go side by side, not as recorded; give --rate, --poisson or --fast")


def _print(result: "Result", *, as_json: bool) -> None:
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        typer.echo(json.dumps(result.document))
        return
    for line in result.lines:
        typer.echo(line)


def _tell(damage: str) -> None:
    typer.echo(f"skipped: {damage}", err=True)


def _once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """Told of a damage again, as a source is read for every target and for the report, it says nothing."""
    told: set[str] = set()

    def tell_once(damage: str) -> None:
        if damage not in told:
            told.add(damage)
            tell(damage)

    return tell_once
