"""item-catalog diff: what sets two catalogues apart, wherever they lie."""

import json
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from item_catalog.catalog import Catalog
from item_catalog.cli.console import printable, progress
from item_catalog.cli.places import PLACE_HELP, open_place
from item_catalog.updating.differences import Differences, differences


def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=PLACE_HELP)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=PLACE_HELP)],
    examples: Annotated[int, typer.Option(min=0, help="Show so many items of each kind.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Show how many items were added, removed, moved, and have other attributes."""
    with progress("comparing"):
        catalogs = open_place(before, verify=False), open_place(after, verify=False)
        found = differences(*catalogs)
    facts = _facts(*catalogs, found, examples)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        _print(facts)


def _facts(before: Catalog, after: Catalog, found: Differences, examples: int) -> dict[str, Any]:
    def some(catalog: Catalog, positions: np.ndarray[Any, np.dtype[np.int64]]) -> dict[str, Any]:
        count = {"count": len(positions)}
        return count | {"examples": catalog.item_ids.take(positions[:examples])} if examples else count

    return {
        "version_before": before.version,
        "version_after": after.version,
        "items_before": before.num_items,
        "items_after": after.num_items,
        "added": some(after, found.added),
        "removed": some(before, found.removed),
        "moved": some(after, found.moved),
        "moved_by_level": [
            some(after, found.moved[found.moved_levels == level]) for level in range(after.layout.num_levels)
        ],
        "attributes_changed": {name: some(after, positions) for name, positions in found.changed.items()},
        "attributes_added": found.attributes_added,
        "attributes_removed": found.attributes_removed,
    }


def _print(facts: dict[str, Any]) -> None:
    rows = {"added": facts["added"], "removed": facts["removed"], "moved": facts["moved"]}
    rows |= {f"moved, from level {level} on": entry for level, entry in enumerate(facts["moved_by_level"])}
    rows |= {f"other {name}": entry for name, entry in facts["attributes_changed"].items()}
    table = Table(title=f"{facts['version_before']} to {facts['version_after']}", title_justify="left")
    for heading in ("items", "count", "for example"):
        table.add_column(heading, justify="right" if heading == "count" else "left", overflow="fold")
    for name, entry in rows.items():
        table.add_row(name, f"{entry['count']:,}", printable(", ".join(entry.get("examples", []))))
    Console(highlight=False, markup=False).print(table)
    typer.echo(f"{facts['items_before']:,} items before, {facts['items_after']:,} afterwards")
    for kind in ("added", "removed"):
        if facts[f"attributes_{kind}"]:
            typer.echo(f"attributes {kind}: {', '.join(facts[f'attributes_{kind}'])}")
