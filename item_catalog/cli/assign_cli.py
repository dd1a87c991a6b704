"""item-catalog assign-sids: a file of embeddings -> a file of items and SIDs that `item-catalog build` reads."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from item_catalog.assigning.assign_sids import AssignmentSettings, assign_sids
from item_catalog.assigning.embeddings import open_embeddings
from item_catalog.assigning.sid_quality import SidQuality
from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn
from item_catalog.sid import SidLayout

_ROW_GROUP_ROWS = 1 << 20
_MAX_HISTOGRAM_ROWS = 12


def assign_sids_command(
    embeddings: Annotated[Path, typer.Argument(help="File of embeddings: .npy, or .parquet with item_id, embedding.")],
    out: Annotated[Path, typer.Argument(help="File of items and SIDs to write: .parquet.")],
    ids: Annotated[
        Path | None, typer.Option(help="Item ids of a .npy: .npy of integers, or text. Left out: row numbers.")
    ] = None,
    levels: Annotated[int, typer.Option(help="Codes in a SID.")] = 3,
    codes: Annotated[str, typer.Option(help="Codes per level, as 256, or 512,256,256.")] = "256",
    seed: Annotated[int, typer.Option(help="Decides the sample and where clusters start.")] = 0,
    iterations: Annotated[int, typer.Option(help="Iterations of k-means per level, at most.")] = 20,
    sample: Annotated[int, typer.Option(help="Items to train on; all get SIDs.")] = 200_000,
    balance: Annotated[
        float, typer.Option(help="How many times its fair share of items a code may hold; inf for no limit.")
    ] = 2.0,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Last level: the next nearest free code where a SID is taken.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Give items SIDs from their embeddings, by residual k-means with balanced codebooks."""
    if out.suffix != ".parquet":
        raise CatalogError(f"{out}: suffix {out.suffix!r}; give a name that ends in .parquet")
    settings = AssignmentSettings(_parse_layout(codes, levels), seed, iterations, sample, balance, distinct)
    with Console(stderr=True).status(escape(f"opening {embeddings}")) as status:
        source = open_embeddings(embeddings, ids)
        try:
            assignment = assign_sids(source, settings, status.update)
        except CatalogError as error:
            where = "" if str(error).startswith(str(embeddings)) else f"{embeddings}: "
            raise CatalogError(f"{where}{error}") from error
        status.update(escape(f"writing {out}"))
        _write(out, source.item_ids, assignment.sids)
    if as_json:
        typer.echo(json.dumps(asdict(assignment.quality)))
    else:
        _print_quality(assignment.quality)


def _parse_layout(codes: str, levels: int) -> SidLayout:
    try:
        sizes = tuple(int(size) for size in codes.split(","))
    except ValueError as error:
        raise CatalogError(f"--codes: {codes!r}; give integers with commas, as 256 or 512,256,256") from error
    if len(sizes) not in (1, levels):
        raise CatalogError(f"--codes: {codes!r} for {levels} levels; give one integer, or one for each level")
    return SidLayout(sizes * levels if len(sizes) == 1 else sizes)


def _write(path: Path, item_ids: IdColumn, sids: NDArray[np.int32]) -> None:
    """Write beside `path` and rename into it: it is never half-written."""
    staging = path.with_name(f".{path.name}.{uuid4().hex}")
    columns = {f"sid_{level}": sids[:, level] for level in range(sids.shape[1])}
    try:
        pa_parquet.write_table(pa.table({"item_id": item_ids} | columns), staging, row_group_size=_ROW_GROUP_ROWS)
        staging.replace(path)
    except OSError as error:
        raise CatalogError(f"{path}: cannot be written: {error.strerror or error}; give another place") from error
    finally:
        staging.unlink(missing_ok=True)


def _print_quality(quality: SidQuality) -> None:
    levels = Table(title="codes", title_justify="left")
    for heading in ("level", "codebook", "used", "perplexity", "entropy", "max items", "relative residual"):
        levels.add_column(heading, justify="right")
    for number, level in enumerate(quality.levels):
        levels.add_row(
            str(number),
            f"{level.codebook_size:,}",
            f"{level.used_codes:,}",
            f"{level.perplexity:.1f}",
            f"{level.entropy_bits:.2f} bits",
            f"{level.max_items_per_code:,}",
            f"{level.relative_residual:.4f}",
        )
    Console().print(levels)
    sharing = Table(title="items on one SID", title_justify="left")
    for heading in ("items", "SIDs"):
        sharing.add_column(heading, justify="right")
    for num_items, num_sids in quality.items_per_sid[:_MAX_HISTOGRAM_ROWS]:
        sharing.add_row(f"{num_items:,}", f"{num_sids:,}")
    beyond = quality.items_per_sid[_MAX_HISTOGRAM_ROWS:]
    if beyond:
        sharing.add_row(f"{beyond[0][0]:,} or more", f"{sum(num_sids for _, num_sids in beyond):,}")
    Console().print(sharing)
    typer.echo(
        f"{quality.num_items:,} items on {quality.num_sids:,} SIDs: {quality.num_items_on_shared_sids:,} items share "
        f"{quality.num_shared_sids:,} SIDs, at most {quality.max_items_per_sid:,} on one"
    )
