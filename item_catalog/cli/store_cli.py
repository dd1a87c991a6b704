"""item-catalog's commands for stores: publish versions, apply updates, go back, tidy up."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from item_catalog.catalog import Catalog
from item_catalog.cli.console import printable, progress
from item_catalog.cli.source_options import ATTRIBUTE_HELP, build_source, parse_attributes, parse_layout
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.storage.directory import open_catalog
from item_catalog.storage.manifest import MANIFEST_FILE
from item_catalog.updating.store import CatalogStore, Snapshot, is_store
from item_catalog.updating.update_lines import UpdateLines, read_updates
from item_catalog.updating.updates import InvalidUpdates

_Store = Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a store.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def publish(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Directory of a built catalogue, or a file of items as for build.")
    ],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Directory of a store; a new one is made.")],
    attribute: Annotated[
        list[str],
        typer.Option(metavar="NAME[:KIND]", default_factory=list, show_default=False, help=ATTRIBUTE_HELP),
    ],
    codebook_sizes: Annotated[
        str,
        typer.Option(help="Codes per level of a file's SIDs, as 256,256,256. Left out: those of the current version."),
    ] = "",
    activate: Annotated[bool, typer.Option(help="Make it the current version.")] = True,
    as_json: _Json = False,
) -> None:
    """Write a version into a store, and make it the current one."""
    existing = CatalogStore(store) if is_store(store) else None
    catalog = _catalog_of(source, existing, attribute, codebook_sizes)
    with progress(f"publishing into {store}"):
        if existing:
            existing.publish(catalog, activate)
        elif activate:
            CatalogStore.create(store, catalog)
        else:
            raise CatalogError(f"{store}: no store yet, and its first version is the current one; leave --no-activate")
    _tell(store, catalog.version, as_json, items=catalog.num_items)


def apply(
    store: _Store,
    updates: Annotated[Path, typer.Argument(metavar="UPDATES.jsonl", help="One update a line, as JSON.")],
    as_json: _Json = False,
) -> None:
    """Change items of the current version: in batches, each of which lasts once it is done."""
    opened = CatalogStore(store)
    with progress(f"loading {store}"):
        snapshot = opened.load()
    totals: Counter[str] = Counter()
    last_line = 0
    with progress(f"applying {updates}") as tell:
        for batch in read_updates(updates):
            try:
                snapshot, applied = opened.apply(batch.updates, snapshot)
            except InvalidUpdates as error:
                raise CatalogError(f"{updates}: {_in_lines(error, batch)}; {_done_until(last_line)}") from error
            except CatalogError as error:
                raise CatalogError(f"{error}; {_done_until(last_line)}") from error
            last_line = batch.last_line
            tell(f"{last_line:,} lines")
            totals.update(
                added=applied.added,
                changed=applied.changed,
                removed=applied.removed,
                unknown_removals=applied.unknown_removals,
            )
    counts = {name: totals[name] for name in ("added", "changed", "removed", "unknown_removals")}
    _tell(store, snapshot.catalog.version, as_json, items=snapshot.catalog.num_items, **counts)


def versions(store: _Store, as_json: _Json = False) -> None:
    """Show what is published, the oldest first."""
    stored = CatalogStore(store).versions()
    if as_json:
        typer.echo(json.dumps([asdict(version) for version in stored]))
        return
    table = Table(title=f"versions of {printable(str(store))}", title_justify="left")
    for heading in ("version", "published", "items", "SIDs", "bytes", "bytes of updates", ""):
        table.add_column(heading, justify="left" if heading in ("version", "published", "") else "right", no_wrap=True)
    for version in stored:
        table.add_row(
            version.version,
            datetime.fromtimestamp(version.published, UTC).isoformat(" ", "seconds"),
            f"{version.num_items:,}",
            f"{version.num_sids:,}",
            f"{version.array_bytes:,}",
            f"{version.update_bytes:,}",
            "current" if version.is_current else "",
        )
    Console(width=max(120, Console().width)).print(table)


def rollback(store: _Store, as_json: _Json = False) -> None:
    """Make current what was before the current version, with the updates it had."""
    _tell(store, CatalogStore(store).rollback(), as_json)


def activate(
    store: _Store,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="One that `versions` shows.")],
    as_json: _Json = False,
) -> None:
    """Make a published version current, with the updates it had."""
    CatalogStore(store).activate(version)
    _tell(store, version, as_json)


def compact(store: _Store, as_json: _Json = False) -> None:
    """Write the current version with its updates as one without, so that it loads at once."""
    opened = CatalogStore(store)
    with progress(f"compacting {store}"):
        snapshot: Snapshot = opened.compact(opened.load())
    _tell(store, snapshot.head.base, as_json, items=snapshot.catalog.num_items)


def prune(
    store: _Store,
    keep: Annotated[int, typer.Option(min=0, help="How many of the versions before the current one stay.")] = 2,
    as_json: _Json = False,
) -> None:
    """Remove old versions, and those that were never current."""
    removed = CatalogStore(store).prune(keep)
    if as_json:
        typer.echo(json.dumps({"removed": removed}))
    else:
        typer.echo(f"{store}: removed {', '.join(removed) or 'nothing'}")


def _catalog_of(source: Path, store: CatalogStore | None, attributes: list[str], codebook_sizes: str) -> Catalog:
    if (source / MANIFEST_FILE).is_file():
        if attributes or codebook_sizes:
            raise CatalogError(f"{source}: is built, so --attribute and --codebook-sizes say nothing; leave them out")
        with progress(f"verifying {source}"):
            return open_catalog(source)
    layout = parse_layout(codebook_sizes) if codebook_sizes else _current_layout(store)
    return build_source(source, layout, parse_attributes(attributes)).catalog


def _current_layout(store: CatalogStore | None) -> SidLayout | None:
    if store is None:
        return None
    return next((SidLayout(version.codebook_sizes) for version in store.versions() if version.is_current), None)


def _in_lines(error: InvalidUpdates, batch: UpdateLines) -> str:
    """The first problem, in terms of lines: `upserts[3].sid[1]` is `sid[1]` of the line of that item."""
    path, description = error.problems[0]
    place, _, field = path.partition("]")
    kind, _, row = place.partition("[")
    if not row:  # of the batch as a whole
        return f"{path}: {description}"
    item_id = batch.updates.upserts[int(row)].item_id if kind == "upserts" else batch.updates.removals[int(row)]
    return f"line {batch.lines[item_id]}: {field.lstrip('.')}: {description}"


def _done_until(line: int) -> str:
    return f"lines 1 to {line:,} are applied" if line else "nothing is applied"


def _tell(store: Path, version: str, as_json: bool, **facts: Any) -> None:
    if as_json:
        typer.echo(json.dumps({"version": version} | facts))
        return
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in facts.items())
    typer.echo(f"{store}: version {version}{f', {counts}' if counts else ''}")


COMMANDS: dict[str, Callable[..., None]] = {
    "publish": publish,
    "apply": apply,
    "versions": versions,
    "activate": activate,
    "rollback": rollback,
    "compact": compact,
    "prune": prune,
}
