"""recall-service log: look into a request log, count what it holds, make a table of it.

What is found damaged, and progress, go to stderr; a log that cannot be read is one line there and exit code 2.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recall_service.terminal import one_line_errors, printable

if TYPE_CHECKING:  # whoever only asks for help does not wait for these
    from recall_service.request_log.reader import Frame, LogDamage
    from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall

log_app = typer.Typer(help="Read request logs.", no_args_is_help=True)

_Path = Annotated[Path, typer.Argument(help="A file of a request log, or the directory of one.")]
_SkipDamaged = Annotated[bool, typer.Option("--skip-damaged", help="Go on at the next sound frame.")]


@log_app.command()
def cat(
    path: _Path,
    limit: Annotated[int, typer.Option(min=0, help="How many records; 0 is all.")] = 0,
    skip_damaged: _SkipDamaged = False,
    as_json: Annotated[bool, typer.Option("--json", help="Whole records, as JSON lines.")] = False,
) -> None:
    """Print one line for each record, oldest first."""
    from recall_service.request_log.reader import read_log

    shown = _json_line if as_json else _text_line
    with one_line_errors():
        records = read_log(path, skip_damaged=skip_damaged, on_damage=_tell)
        for record in islice(records, limit or None):
            typer.echo(shown(record))


@log_app.command()
def stats(
    path: _Path,
    skip_damaged: _SkipDamaged = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")] = False,
) -> None:
    """Count records by scene, code and version; latencies of those that were answered, to 1 %."""
    from recall_service.request_log.statistics import LogStatistics

    statistics = LogStatistics()
    with one_line_errors():
        for frame in _frames(path, skip_damaged):
            for record in frame.records:
                statistics.add(record)
    document = statistics.document()
    if as_json:
        typer.echo(json.dumps(document))
        return
    for name, value in document.items():
        shown = value.items() if isinstance(value, dict) else [("", value)]
        for detail, number in shown:
            typer.echo(f"{name.replace('_', ' '):>20}  {_rounded(number):<12} {detail}".rstrip())


@log_app.command()
def to_parquet(
    path: _Path,
    out: Annotated[Path, typer.Argument(help="The Parquet file; one that is there is replaced.")],
    skip_damaged: _SkipDamaged = False,
) -> None:
    """Write a flat table, one row for each record."""
    from recall_service.request_log.parquet import write_parquet

    with one_line_errors():
        num_rows = write_parquet(_frames(path, skip_damaged), out)
    typer.echo(f"{out}: {num_rows:,} rows")


def _frames(path: Path, skip_damaged: bool) -> "Iterator[Frame]":
    """Those of a log, with a bar on a terminal's stderr that shows how far it is."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    from recall_service.request_log.reader import find_files, read_frames

    files, console = find_files(path), Console(stderr=True)
    columns = BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=sum(file.stat().st_size for file in files))
        for frame in read_frames(files, skip_damaged=skip_damaged, on_damage=_tell):
            yield frame
            progress.advance(bar, frame.file_bytes)


def _text_line(record: "LoggedRecall") -> str:
    from recall_service.request_log.names import SERVED_FROM, code_name

    request, answer = record.request, record.answer
    asked = f"{len(request.history.item_ids) or len(request.prompt.token_ids)} in"
    if record.status_code:
        outcome = record.error_reason
    else:
        served_from = SERVED_FROM.get(answer.served_from, str(answer.served_from))
        outcome = f"{len(answer.item_ids)} out, {served_from}, {answer.bundle_version}/{answer.catalog_version}"
    words = (
        record.arrival_time.ToJsonString(),
        code_name(record.status_code),
        f"{record.total_seconds * 1_000:.2f} ms",
        request.scene or "-",
        request.request_id,
        f"{asked}, {outcome}",
    )
    return "  ".join(map(printable, words))


def _json_line(record: "LoggedRecall") -> str:
    from google.protobuf.json_format import MessageToDict

    return json.dumps(MessageToDict(record, preserving_proto_field_name=True))


def _rounded(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _tell(damage: "LogDamage") -> None:
    typer.echo(f"skipped: {damage}", err=True)
