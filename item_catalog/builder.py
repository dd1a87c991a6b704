"""Rows of (item id, SID) in any order -> a Catalog. Vectorised: two sorts, boundaries by comparison, sums for offsets.

Rows are sorted by SID, and on one SID by id; a row that repeats another exactly is merged with it. So neither the order
of the rows nor repeating them changes anything, the version included. This module knows no files.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn, id_column, repeats_previous, sorting_order, take
from item_catalog.item_ids import item_ids_from_column
from item_catalog.sid import MAX_CODEBOOK_SIZE, SidLayout
from item_catalog.trie import PrefixTrie, offset_dtype


def build_catalog(
    layout: SidLayout | None,
    sids: NDArray[np.integer] | Sequence[Sequence[int]],
    item_ids: NDArray[np.integer] | Sequence[str] | pa.Array,
) -> Catalog:
    """Rows in any order -> the catalogue of them.

    layout: levels and codebook sizes; None takes `infer_layout(sids)`. A model's real codebook sizes are better.
    sids: integers [n, num_levels], n >= 1.
    item_ids: integers [n], or strings [n] of 1 to 256 bytes of UTF-8. Several items may share a SID; one item may not
        have several.

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

    rows = _distinct_rows_by_id(codes, ids)
    by_sid = np.lexsort(layout.pack(codes[rows]).T[::-1])  # stable: on one SID, ids stay ascending
    rows = rows[by_sid]
    order = np.empty_like(by_sid)
    order[by_sid] = np.arange(len(by_sid))  # rows were by ascending id, so the way back sorts the ids

    sorted_codes = codes[rows]
    begins_sid = np.ones(len(rows), bool)
    np.any(sorted_codes[1:] != sorted_codes[:-1], axis=1, out=begins_sid[1:])
    first_items = np.flatnonzero(begins_sid)
    trie = PrefixTrie.from_sorted_sids(layout, sorted_codes[first_items])
    item_offsets = np.append(first_items, len(rows)).astype(offset_dtype(len(rows)))
    return Catalog.snapshot(trie, item_offsets, item_ids_from_column(take(ids, rows), order))


def infer_layout(sids: NDArray[np.integer]) -> SidLayout:
    """SIDs int [n, levels], n >= 1 -> the layout whose codebooks are the smallest powers of two that hold every code.

    Raises CatalogError when a code is outside 0..65,535.
    """
    levels = sids.shape[1] if sids.ndim == 2 else 1  # any other shape is refused by the check
    SidLayout((MAX_CODEBOOK_SIZE,) * levels).check(sids)
    return SidLayout(tuple(1 << int(largest).bit_length() for largest in sids.max(axis=0)))


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


def _distinct_rows_by_id(codes: NDArray[np.integer], ids: IdColumn) -> NDArray[np.int64]:
    """The rows without exact repetitions, by ascending id. Raises CatalogError when one id has two SIDs."""
    rows = sorting_order(ids)
    sorted_ids = take(ids, rows)
    repeats = np.flatnonzero(repeats_previous(sorted_ids))
    differs = np.any(codes[rows[repeats]] != codes[rows[repeats - 1]], axis=1)
    if differs.any():
        at = int(repeats[np.argmax(differs)])
        first, second = sorted((codes[rows[at - 1]].tolist(), codes[rows[at]].tolist()))
        raise CatalogError(f"item {sorted_ids[at]}: has two SIDs, {first} and {second}; give each item one")
    return np.delete(rows, repeats)
