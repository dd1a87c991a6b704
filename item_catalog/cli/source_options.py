"""How commands that read a source are told what to make of it: codebooks, and columns that become attributes."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from item_catalog.attributes import AttributeKind
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.cli.console import progress
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from item_catalog.sources.files import read_source

ATTRIBUTE_HELP = (
    "A column to keep as an attribute of items, for filters; may be given several times. KIND is text, integer, number "
    "or boolean. Left out: what the column holds."
)

_KINDS = [kind.value for kind in AttributeKind]


class BuiltSource(NamedTuple):
    """A catalogue, and how many rows of the source it was built of."""

    catalog: Catalog
    rows_read: int


def build_source(source: Path, layout: SidLayout | None, attributes: dict[str, AttributeKind | None]) -> BuiltSource:
    """Read and build, telling stderr what happens. Raises CatalogError naming the file."""
    with progress(f"reading {source}") as tell:
        rows = read_source(source, attributes, tell)
    with progress(f"building from {len(rows.item_ids):,} rows") as tell:
        try:
            catalog = build_catalog(layout, rows.sids, rows.item_ids, rows.attributes, tell)
        except CatalogError as error:
            raise CatalogError(f"{source}: {error}") from error
    return BuiltSource(catalog, len(rows.item_ids))


def parse_layout(text: str) -> SidLayout:
    """`256,256,256` -> the layout. Raises CatalogError naming the option."""
    try:
        return SidLayout(tuple(int(size) for size in text.split(",")))
    except ValueError as error:
        raise CatalogError(f"--codebook-sizes: {text!r}; give integers with commas, as 256,256,256") from error


def parse_attributes(options: Sequence[str]) -> dict[str, AttributeKind | None]:
    """`NAME` or `NAME:KIND` each -> kinds by name, None where the column decides. Raises CatalogError."""
    attributes: dict[str, AttributeKind | None] = {}
    for option in options:
        name, _, kind = option.partition(":")
        if name in attributes:
            raise CatalogError(f"--attribute: {name!r} twice; give it once")
        if ":" in option and kind not in _KINDS:
            raise CatalogError(f"--attribute: {option!r}; give NAME, or NAME:KIND with one of {', '.join(_KINDS)}")
        attributes[name] = AttributeKind(kind) if kind else None
    return attributes
