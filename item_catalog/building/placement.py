"""Which row stands where in a catalogue: by SID, and on one SID by id; and the trie of the SIDs, built on the way.

This module knows ids and attributes as columns, and no catalogue.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.attributes import AttributeColumn
from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn, repeats_previous, sorting_order, take
from item_catalog.indices import ranges
from item_catalog.sid import SidLayout
from item_catalog.sorting import KeyColumn, SortedRun, map_sorted_runs, stable_order
from item_catalog.trie import PrefixTrie, offset_dtype


class PlacedRows(NamedTuple):
    """Rows in catalogue order.

    rows: integers [num_items]; leaf i has the items item_offsets[i] : item_offsets[i + 1].
    """

    trie: PrefixTrie
    item_offsets: NDArray[np.signedinteger]
    rows: NDArray[np.signedinteger]


def place_rows(layout: SidLayout, codes: NDArray[np.integer]) -> PlacedRows:
    """SIDs int [n, num_levels], n >= 1, that fit the layout -> their rows, on one SID as they come."""
    rows = np.empty(len(codes), offset_dtype(len(codes)))

    def place_run(run: SortedRun) -> tuple[PrefixTrie, NDArray[np.signedinteger]]:
        """The trie of a run, and where the items of each of its leaves begin."""
        rows[run.first : run.first + len(run.rows)] = run.rows
        begins_sid = np.zeros(len(run.rows), bool)
        begins_sid[0] = True
        for word in run.keys.T:
            begins_sid[1:] |= word[1:] != word[:-1]
        first_items = np.flatnonzero(begins_sid)
        sids = layout.unpack(run.keys.take(first_items, axis=0).view(np.int64))
        return PrefixTrie.from_sorted_sids(layout, sids), (run.first + first_items).astype(rows.dtype)

    # A run is cut where the first code changes, so that it holds whole subtrees of the root.
    keys = KeyColumn(
        num_rows=len(codes),
        num_words=len(layout.word_bits),
        top_bits=layout.word_bits[0],
        splittable_bits=(layout.codebook_sizes[0] - 1).bit_length(),
        read=lambda chunk: layout.pack(codes[chunk]).view(np.uint64),
    )
    tries, first_items = zip(*map_sorted_runs(keys, place_run), strict=True)
    item_offsets = np.concatenate([*first_items, np.array([len(rows)], rows.dtype)])
    return PlacedRows(PrefixTrie.joined(tries), item_offsets, rows)


def order_leaves(placed: PlacedRows, ids: IdColumn, attributes: Mapping[str, AttributeColumn]) -> PlacedRows:
    """Sort the items of each leaf by id, and merge rows that repeat another. Changes `placed`, and may return it.

    ids, attributes: of all rows, in the rows' own order. Raises CatalogError when rows of one id and SID differ in an
    attribute.
    """
    trie, item_offsets, rows = placed
    counts = np.diff(item_offsets)
    shared = np.flatnonzero(counts > 1)
    if not len(shared):
        return placed
    counts = counts[shared]
    leaves = np.repeat(shared, counts)
    positions = ranges(item_offsets[shared], counts)

    by_id = sorting_order(take(ids, rows[positions]))
    ordered = rows[positions[by_id[stable_order(leaves[by_id].view(np.uint64)[:, None])]]]
    rows[positions] = ordered
    is_repeat = repeats_previous(take(ids, ordered))
    is_repeat[np.cumsum(counts) - counts] = False
    repeats = np.flatnonzero(is_repeat)
    if not len(repeats):
        return placed
    for name, column in attributes.items():
        _require_same_values(name, column, ordered[repeats - 1], ordered[repeats], ids)
    repeated_positions = positions[repeats]
    merged_before = np.searchsorted(repeated_positions, item_offsets).astype(item_offsets.dtype)
    num_items = len(rows) - len(repeats)
    return PlacedRows(
        trie, (item_offsets - merged_before).astype(offset_dtype(num_items)), np.delete(rows, repeated_positions)
    )


def _require_same_values(
    name: str,
    column: AttributeColumn,
    rows: NDArray[np.signedinteger],
    repeats: NDArray[np.signedinteger],
    ids: IdColumn,
) -> None:
    differs = column.values[rows] != column.values[repeats]
    if column.missing is not None:
        differs |= column.missing[rows] != column.missing[repeats]
    if differs.any():
        at = int(np.argmax(differs))
        raise CatalogError(
            f"item {ids[repeats[at]]}: rows {rows[at]} and {repeats[at]} differ in attribute {name}; "
            "give each item one row"
        )
