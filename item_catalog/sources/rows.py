"""Batches of a table as somebody wrote it -> the rows that a catalogue can be built from, in arrays of their own.

The table has a column `item_id`, SIDs as source_codes describes them, and a column for each attribute that is asked
for. Arrays are filled batch by batch, so that beside them no more than a batch is ever in memory.

Errors name the row, counted from 0 without any header, and its item. This module opens no file.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.attributes import AttributeKind
from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn
from item_catalog.sources.attributes import AttributeCollector
from item_catalog.sources.batch import SourceBatch
from item_catalog.sources.codes import CodeCollector, holds_codes
from item_catalog.sources.ids import IdCollector


class SourceRows(NamedTuple):
    """What a source holds, in its own order.

    item_ids: int64 [n] when every id is an integer, or text that spells one as `str` would; else Arrow strings [n].
    sids: uint16 [n, levels], not yet held against any codebook.
    attributes: by name, Arrow arrays [n], null where a value is missing.
    """

    item_ids: IdColumn
    sids: NDArray[np.uint16]
    attributes: Mapping[str, pa.Array]


def is_read(column_name: str) -> bool:
    """Whether a column of this name says anything about items and SIDs."""
    return column_name == "item_id" or holds_codes(column_name)


def rows_of_batches(
    num_rows: int,
    tables: Iterable[pa.Table],
    attributes: Mapping[str, AttributeKind | None],
    progress: Callable[[str], None],
) -> SourceRows:
    """Tables of `num_rows` rows together -> their rows.

    attributes: which to read, and the kind of each; None for the kind that its column has.

    Raises CatalogError naming the row, the column, the value and the remedy.
    """
    if not num_rows:
        raise CatalogError("no rows; give at least one item")
    ids, codes = IdCollector(num_rows), CodeCollector(num_rows)
    columns = {name: AttributeCollector(name, kind, num_rows) for name, kind in attributes.items()}
    filled = 0
    for table in tables:
        if not table.num_rows:
            continue
        batch = SourceBatch(table, filled)
        filled += len(batch)
        if filled > num_rows:
            break
        ids.add(batch)
        codes.add(batch)
        for column in columns.values():
            column.add(batch)
        progress(f"read {filled:,} of {num_rows:,} rows")
    if filled != num_rows or codes.codes is None:
        raise CatalogError(f"{num_rows:,} rows are announced, and others are there; write it again")
    return SourceRows(ids.column(), codes.codes, {name: column.values() for name, column in columns.items()})
