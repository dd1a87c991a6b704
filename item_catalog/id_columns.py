"""Columns of item ids: int64 numbers or UTF-8 strings, and the few operations that building and checking need.

Everything runs over whole columns in numpy or Arrow; no id becomes a Python object. Strings order by their UTF-8
bytes, numbers by value. This module knows no SIDs, no catalogue and no file.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.sorting import KeyColumn, SortedRun, map_sorted_runs
from item_catalog.threads import in_threads, slices
from item_catalog.trie import offset_dtype
from item_catalog.utf8 import are_utf8

MAX_ID_BYTES = 256
# The one spelling that `str` gives an integer; "007" and "+7" are no ids of an integer catalogue.
INTEGER_SPELLING = r"0|-?[1-9][0-9]{0,18}"

IdColumn: TypeAlias = NDArray[np.int64] | pa.LargeStringArray


class IdOrder(NamedTuple):
    """The order that sorts ids.

    rows: int32 (int64 from 2**31) [n], by ascending id.
    first_repeat: the first place in `rows` whose id is that of the place before; None if all ids differ.
    """

    rows: NDArray[np.signedinteger]
    first_repeat: int | None


def id_column(item_ids: NDArray[np.integer] | Sequence[str] | pa.Array) -> IdColumn:
    """Integers [n] or strings [n] as a column.

    Raises CatalogError naming the row (counted from 0) when an id is missing, empty, longer than 256 bytes, no
    UTF-8, not a string among strings, or not an int64 among integers.
    """
    if isinstance(item_ids, np.ndarray) and np.issubdtype(item_ids.dtype, np.integer):
        return _integer_column(item_ids)
    return _text_column(item_ids)


def sorting_order(column: IdColumn) -> NDArray[np.signedinteger]:
    """The rows int32 (int64 from 2**31) [n] in ascending order of their ids."""
    return order_ids(column).rows


def order_ids(column: IdColumn) -> IdOrder:
    """The ascending order of ids, and whether one comes twice."""
    rows = np.empty(len(column), offset_dtype(len(column)))
    if not isinstance(column, np.ndarray):
        rows[:] = pc.sort_indices(column).to_numpy()
        return IdOrder(rows, _first(repeats_previous(column.take(pa.array(rows)))))
    lowest, highest = column.min(), column.max()
    id_bits = (int(highest) - int(lowest)).bit_length()

    def read(part: slice) -> NDArray[np.uint64]:
        above_lowest: NDArray[np.int64] = column[part] - lowest  # beyond int64 it wraps to the right bits
        return above_lowest.view(np.uint64)[:, None]

    def store(run: SortedRun) -> int | None:
        rows[run.first : run.first + len(run.rows)] = run.rows
        repeat = _first(run.keys[1:, 0] == run.keys[:-1, 0])
        return None if repeat is None else run.first + 1 + repeat

    repeats = map_sorted_runs(KeyColumn(len(column), 1, id_bits, id_bits, read), store)
    return IdOrder(rows, next((place for place in repeats if place is not None), None))


def is_ascending(column: IdColumn, order: NDArray[np.integer] | None = None) -> bool:
    """Whether every id is greater than the one before it: as they stand, or in an order of rows."""

    def ascends(part: slice) -> bool:
        wanted = slice(max(part.start - 1, 0), part.stop)  # from the last of the part before
        if order is None:
            ids = column[wanted]
        else:
            ids = column[order[wanted]] if isinstance(column, np.ndarray) else column.take(pa.array(order[wanted]))
        return bool(exceeds_previous(ids).all())

    return all(in_threads(ascends, slices(len(column))))


def take(column: IdColumn, rows: NDArray[np.integer]) -> IdColumn:
    """The ids of `rows`, in that order."""
    if not isinstance(column, np.ndarray):
        return column.take(pa.array(rows))
    taken = np.empty(len(rows), np.int64)

    def fill(part: slice) -> None:
        taken[part] = column[rows[part]]

    in_threads(fill, slices(len(rows)))
    return taken


def repeats_previous(column: IdColumn) -> NDArray[np.bool_]:
    """Bool [n]: whether an id equals the one before it. The first never does."""
    repeats = np.zeros(len(column), bool)
    if isinstance(column, np.ndarray):
        np.equal(column[1:], column[:-1], out=repeats[1:])
    else:
        repeats[1:] = pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return repeats


def exceeds_previous(column: IdColumn) -> NDArray[np.bool_]:
    """Bool [n]: whether an id is greater than the one before it. The first always is."""
    exceeds = np.ones(len(column), bool)
    if isinstance(column, np.ndarray):
        np.greater(column[1:], column[:-1], out=exceeds[1:])
    else:
        exceeds[1:] = pc.greater(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    return exceeds


def _integer_column(item_ids: NDArray[np.integer]) -> NDArray[np.int64]:
    if item_ids.ndim != 1:
        raise CatalogError(f"item_ids: an array of shape {item_ids.shape}; give one id per row")
    column = item_ids.astype(np.int64, copy=False)
    if item_ids.dtype == np.uint64 and (column < 0).any():
        row = int(np.argmax(column < 0))
        raise CatalogError(f"item_ids: row {row} has id {item_ids[row]}, beyond int64; give ids that large as strings")
    return column


def _text_column(item_ids: Sequence[str] | NDArray[np.str_] | pa.Array) -> pa.LargeStringArray:
    if isinstance(item_ids, pa.Array):
        if not (pa.types.is_string(item_ids.type) or pa.types.is_large_string(item_ids.type)):
            raise CatalogError(
                f"item_ids: an Arrow array of {item_ids.type}; give strings, or a numpy array of integers"
            )
        column = item_ids.cast(pa.large_string())
    else:
        try:
            column = pa.array(list(item_ids), pa.large_string())
        except (pa.ArrowException, UnicodeEncodeError) as error:
            row = next(row for row, item_id in enumerate(item_ids) if not _is_text(item_id))
            raise CatalogError(
                f"item_ids: row {row} has {item_ids[row]!r}; give strings of Unicode text, or a numpy array of integers"
            ) from error
    if column.null_count:
        row = pc.index(pc.is_null(column), pa.scalar(True)).as_py()
        raise CatalogError(f"item_ids: row {row} has no id; give every row one")
    lengths = pc.binary_length(column).to_numpy()
    is_wrong = (lengths < 1) | (lengths > MAX_ID_BYTES)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        raise CatalogError(f"item_ids: row {row} has an id of {lengths[row]} bytes; give 1 to {MAX_ID_BYTES} bytes")
    if not (is_utf8 := are_utf8(column)).all():
        row = int(np.argmin(is_utf8))
        shown = column[row].cast(pa.large_binary()).as_py().decode(errors="replace")
        raise CatalogError(f"item_ids: row {row} has {shown!r}, which is no UTF-8; give UTF-8 text")
    return column


def _is_text(item_id: object) -> bool:
    if not isinstance(item_id, str):
        return item_id is None  # reported on its own, as a missing id
    try:
        item_id.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first(mask: NDArray[np.bool_]) -> int | None:
    """Where the first true one is."""
    return int(np.argmax(mask)) if mask.any() else None
