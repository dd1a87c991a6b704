"""item-catalog: build a catalogue from a file, look at one, verify one; what stores can do is in store_cli.

People read tables and progress; `--json` gives machines one JSON document as the last line of stdout. An error is one
line on stderr and exit code 2.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from item_catalog.catalog import Catalog
from item_catalog.cli.assign_cli import assign_sids_command
from item_catalog.cli.console import one_line_errors, progress
from item_catalog.cli.diff_cli import diff
from item_catalog.cli.places import PLACE_HELP, open_place
from item_catalog.cli.source_options import ATTRIBUTE_HELP, build_source, parse_attributes, parse_layout
from item_catalog.cli.store_cli import COMMANDS
from item_catalog.statistics import catalog_statistics
from item_catalog.storage.directory import save_catalog

app = typer.Typer(
    help="Build, inspect and verify catalogues of items and their semantic IDs; publish and change them in stores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
_Place = Annotated[str, typer.Argument(metavar="PLACE", help=PLACE_HELP)]


@app.command()
def build(
    source: Annotated[
        Path, typer.Argument(help="File of items: .json, .jsonl, .csv or .parquet, or a directory of .parquet.")
    ],
    out: Annotated[Path, typer.Argument(help="Directory to publish the catalogue as.")],
    attribute: Annotated[
        list[str],
        typer.Option(metavar="NAME[:KIND]", default_factory=list, show_default=False, help=ATTRIBUTE_HELP),
    ],
    codebook_sizes: Annotated[
        str, typer.Option(help="Codes per level, as 256,256,256. Left out: the powers of two that hold every code.")
    ] = "",
    as_json: _JsonFlag = False,
) -> None:
    """Build a catalogue from a file and publish it."""
    with one_line_errors():
        layout = parse_layout(codebook_sizes) if codebook_sizes else None
        catalog, rows_read = build_source(source, layout, parse_attributes(attribute))
        with progress(f"writing {out}"):
            save_catalog(catalog, out)
    facts = {"rows_read": rows_read, "duplicate_rows_merged": rows_read - catalog.num_items}
    if as_json:
        typer.echo(json.dumps(facts | _facts(catalog)))
    else:
        typer.echo(f"read {rows_read:,} rows, merged {facts['duplicate_rows_merged']:,} that repeat another")
        _print_summary(catalog)


@app.command()
def inspect(place: _Place, as_json: _JsonFlag = False) -> None:
    """Show levels, branching, collisions and attributes."""
    with one_line_errors():
        catalog = open_place(place, verify=False)
    if as_json:
        typer.echo(json.dumps(_facts(catalog)))
    else:
        _print_summary(catalog)


@app.command()
def verify(place: _Place) -> None:
    """Check every checksum and every invariant; of a store, those of one version, and that its updates fit."""
    with one_line_errors(), progress(f"verifying {place}") as tell:
        catalog = open_place(place, verify=True, progress=tell)
    typer.echo(f"{place}: sound, version {catalog.version}")


def _facts(catalog: Catalog) -> dict[str, Any]:
    identity = {"version": catalog.version, "item_id_kind": catalog.item_ids.KIND}
    return identity | asdict(catalog_statistics(catalog))


def _print_summary(catalog: Catalog) -> None:
    statistics = catalog_statistics(catalog)
    table = Table(title=f"catalogue {catalog.version}", title_justify="left")
    for heading in ("level", "codebook", "prefixes", "mean branching", "max branching", "chain links", "decided"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(statistics.levels):
        table.add_row(
            str(number),
            f"{level.codebook_size:,}",
            f"{level.num_prefixes:,}",
            f"{level.mean_branching:.2f}",
            f"{level.max_branching:,}",
            f"{level.num_chain_links:,}",
            f"{level.num_decided_sids:,}",
        )
    Console(width=max(100, Console().width)).print(table)
    typer.echo(f"{statistics.num_items:,} items ({catalog.item_ids.KIND} ids) on {statistics.num_sids:,} SIDs")
    typer.echo(
        f"{statistics.num_items_on_shared_sids:,} items share {statistics.num_shared_sids:,} SIDs, "
        f"at most {statistics.max_items_per_sid:,} on one"
    )
    typer.echo(f"{statistics.total_bytes:,} bytes, of which the trie {statistics.trie_bytes:,}")
    for name, column in statistics.attributes.items():
        typer.echo(
            f"{name}: {column.kind}, {column.num_distinct:,} distinct, {column.num_missing:,} missing, "
            f"{column.total_bytes:,} bytes"
        )


_elsewhere: dict[str, Callable[..., None]] = {"assign-sids": assign_sids_command, **COMMANDS, "diff": diff}
for _name, _command in _elsewhere.items():
    app.command(_name)(one_line_errors()(_command))
