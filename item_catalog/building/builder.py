"""Rows of (item id, SID, attributes) in any order -> a Catalog. Vectorised, on every core, in bounded memory.

Rows are sorted by SID, and on one SID by id; a row that repeats another exactly is merged with it. So neither the order
of the rows nor repeating them changes anything, the version included. This module knows no files.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.attribute_columns import attribute_column, take_rows
from item_catalog.attributes import AttributeColumn
from item_catalog.building.placement import order_leaves, place_rows
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn, id_column, is_ascending, order_ids, take
from item_catalog.item_ids import item_ids_from_column
from item_catalog.sid import MAX_CODEBOOK_SIZE, SidLayout
from item_catalog.threads import in_threads, slices
from item_catalog.trie import PrefixTrie


def build_catalog(
    layout: SidLayout | None,
    sids: NDArray[np.integer] | Sequence[Sequence[int]],
    item_ids: NDArray[np.integer] | Sequence[str] | pa.Array,
    attributes: Mapping[str, pa.Array | NDArray[Any]] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Catalog:
    """Rows in any order -> the catalogue of them.

    layout: levels and codebook sizes; None takes `infer_layout(sids)`. A model's real codebook sizes are better.
    sids: integers [n, num_levels], n >= 1, of any dtype; 16 bits are enough.
    item_ids: integers [n], or strings [n] of 1 to 256 bytes of UTF-8. Several items may share a SID; one item may not
        have several.
    attributes: by name, values [n]; see `attribute_column`.
    progress: is told what begins: "sorting SIDs", "ordering item ids", "fingerprinting".

    How many repeated rows were merged is `n - catalog.num_items`. Raises CatalogError naming row (counted from 0),
    field, value and remedy.
    """
    codes = _code_array(sids)
    ids = id_column(item_ids)
    if len(codes) != len(ids):
        raise CatalogError(f"item_ids: {len(ids)} ids for {len(codes)} SIDs; give one id for each SID")
    if not len(ids):
        raise CatalogError("items: there are none; give at least one row")
    layout = layout or infer_layout(codes)
    layout.check(codes)
    columns = {name: _column_of_rows(name, values, len(ids)) for name, values in (attributes or {}).items()}

    progress("sorting SIDs")
    placed = place_rows(layout, codes)
    if not (ids_ascend := is_ascending(ids)):
        placed = order_leaves(placed, ids, columns)
    trie, item_offsets, rows = placed

    progress("ordering item ids")
    placed_columns = {name: take_rows(column, rows) for name, column in columns.items()}
    placed_ids = take(ids, rows)
    if ids_ascend:
        order = _inverse(rows)
    else:
        del placed, rows  # as much memory as the order that comes
        order, repeat = order_ids(placed_ids)
        if repeat is not None:  # on one SID it is merged by now
            _refuse_two_sids(trie, item_offsets, placed_ids, np.sort(order[repeat - 1 : repeat + 1]))
    progress("fingerprinting")
    return Catalog.snapshot(trie, item_offsets, item_ids_from_column(placed_ids, order), placed_columns)


def infer_layout(sids: NDArray[np.integer]) -> SidLayout:
    """SIDs int [n, levels], n >= 1 -> the layout whose codebooks are the smallest powers of two that hold every code.

    Raises CatalogError when a code is outside 0..65,535.
    """
    levels = sids.shape[1] if sids.ndim == 2 else 1  # any other shape is refused by the check
    SidLayout((MAX_CODEBOOK_SIZE,) * levels).check(sids)
    return SidLayout(tuple(1 << int(sids[:, level].max()).bit_length() for level in range(levels)))


def _code_array(sids: NDArray[np.integer] | Sequence[Sequence[int]]) -> NDArray[np.integer]:
    """Integers [n, levels]; an error names the first row that makes them something else."""
    try:
        codes = np.asarray(sids)
    except ValueError:  # ragged
        codes = np.empty((len(sids), 1), object)
    if codes.ndim != 2 or not codes.size or np.issubdtype(codes.dtype, np.integer):
        return codes  # of another shape it may still be, which the layout refuses
    row = next((row for row, sid in enumerate(sids) if not _is_sid(sid, like=sids[0])), 0)
    raise CatalogError(
        f"codes: row {row} is {list(sids[row])}, row 0 is {list(sids[0])}; give every row one integer for each level"
    )


def _is_sid(sid: Sequence[int], like: Sequence[int]) -> bool:
    return len(sid) == len(like) and all(
        isinstance(code, int | np.integer) and not isinstance(code, bool) and int(code) in range(MAX_CODEBOOK_SIZE)
        for code in sid
    )


def _column_of_rows(name: str, values: pa.Array | NDArray[Any], num_rows: int) -> AttributeColumn:
    column = attribute_column(name, values)
    if len(column) != num_rows:
        raise CatalogError(f"attribute {name}: {len(column)} values for {num_rows} rows; give one for each row")
    return column


def _refuse_two_sids(
    trie: PrefixTrie, item_offsets: NDArray[np.signedinteger], ids: IdColumn, positions: NDArray[np.signedinteger]
) -> NoReturn:
    """Ids in catalogue order, and two positions of one id."""
    first, second = trie.leaf_sids(np.searchsorted(item_offsets, positions, side="right") - 1).tolist()
    raise CatalogError(f"item {ids[positions[0]]}: has two SIDs, {first} and {second}; give each item one")


def _inverse(permutation: NDArray[np.signedinteger]) -> NDArray[np.signedinteger]:
    inverse = np.empty_like(permutation)

    def invert(part: slice) -> None:
        inverse[permutation[part]] = np.arange(part.start, part.stop, dtype=permutation.dtype)

    in_threads(invert, slices(len(permutation)))
    return inverse
