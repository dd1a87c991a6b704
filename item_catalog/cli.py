"""item-catalog: build a catalogue from a file, look at one, verify one.

People read tables and progress; `--json` gives machines one JSON document as the last line of stdout. An error is one
line on stderr and exit code 2.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from item_catalog.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.sources import read_source
from item_catalog.statistics import catalog_statistics
from item_catalog.storage import open_catalog, save_catalog

app = typer.Typer(
    help="Build, inspect and verify catalogues of items and their semantic IDs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
_Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a built catalogue.")]


@app.command()
def build(
    source: Annotated[Path, typer.Argument(help="File of items: .json, .jsonl, .csv or .parquet.")],
    out: Annotated[Path, typer.Argument(help="Directory to publish the catalogue as.")],
    codebook_sizes: Annotated[
        str, typer.Option(help="Codes per level, as 256,256,256. Left out: the powers of two that hold every code.")
    ] = "",
    as_json: _JsonFlag = False,
) -> None:
    """Build a catalogue from a file and publish it."""
    with _one_line_errors():
        layout = _parse_layout(codebook_sizes) if codebook_sizes else None
        with _progress(f"reading {source}"):
            rows = read_source(source)
        with _progress(f"building from {len(rows.item_ids):,} rows"):
            try:
                catalog = build_catalog(layout, rows.sids, rows.item_ids)
            except CatalogError as error:
                raise CatalogError(f"{source}: {error}") from error
        with _progress(f"writing {out}"):
            save_catalog(catalog, out)
    rows_read = len(rows.item_ids)
    facts = {"rows_read": rows_read, "duplicate_rows_merged": rows_read - catalog.num_items}
    if as_json:
        typer.echo(json.dumps(facts | _facts(catalog)))
    else:
        typer.echo(f"read {rows_read:,} rows, merged {facts['duplicate_rows_merged']:,} that repeat another")
        _print_summary(catalog)


@app.command()
def inspect(directory: _Directory, as_json: _JsonFlag = False) -> None:
    """Show levels, branching and collisions."""
    with _one_line_errors():
        catalog = open_catalog(directory, verify=False)
    if as_json:
        typer.echo(json.dumps(_facts(catalog)))
    else:
        _print_summary(catalog)


@app.command()
def verify(directory: _Directory) -> None:
    """Check every checksum and every invariant."""
    with _one_line_errors(), _progress(f"verifying {directory}"):
        catalog = open_catalog(directory)
    typer.echo(f"{directory}: sound, version {catalog.version}")


def _parse_layout(text: str) -> SidLayout:
    try:
        return SidLayout(tuple(int(size) for size in text.split(",")))
    except ValueError as error:
        raise CatalogError(f"--codebook-sizes: {text!r}; give integers with commas, as 256,256,256") from error


def _facts(catalog: Catalog) -> dict[str, Any]:
    identity = {"version": catalog.version, "item_id_kind": catalog.item_ids.KIND}
    return identity | asdict(catalog_statistics(catalog))


def _print_summary(catalog: Catalog) -> None:
    statistics = catalog_statistics(catalog)
    table = Table(title=f"catalogue {catalog.version}", title_justify="left")
    for heading in ("level", "codebook", "prefixes", "mean branching", "max branching"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(statistics.levels):
        table.add_row(
            str(number),
            f"{level.codebook_size:,}",
            f"{level.num_prefixes:,}",
            f"{level.mean_branching:.2f}",
            f"{level.max_branching:,}",
        )
    Console().print(table)
    typer.echo(f"{statistics.num_items:,} items ({catalog.item_ids.KIND} ids) on {statistics.num_sids:,} SIDs")
    typer.echo(
        f"{statistics.num_items_on_shared_sids:,} items share {statistics.num_shared_sids:,} SIDs, "
        f"at most {statistics.max_items_per_sid:,} on one"
    )
    typer.echo(f"{statistics.total_bytes:,} bytes, of which the trie {statistics.trie_bytes:,}")


@contextmanager
def _progress(step: str) -> Iterator[None]:
    with Console(stderr=True).status(step):
        yield


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except CatalogError as error:
        line = " ".join(str(error).split())
        # Parts of it may come from files that strangers wrote: no terminal shall obey them.
        typer.echo(f"error: {''.join(part if part.isprintable() else '?' for part in line)}", err=True)
        raise typer.Exit(2) from None
