"""An attribute column after items came, went and changed their values; canonical again. Knows no catalogue."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.attributes import DTYPES, AttributeColumn, AttributeKind, Value
from item_catalog.lockstep import lower_bounds
from item_catalog.trie import NOT_FOUND
from item_catalog.updating.splice import Splice, splice_texts


@dataclass(frozen=True, slots=True, eq=False)
class ItemMoves:
    """What happens to the items of a catalogue.

    items: which positions go, and which come.
    origins: int64 [what comes], the old position of an item that moved; NOT_FOUND for a new one.
    """

    items: Splice
    origins: NDArray[np.int64]


def edit_column(
    column: AttributeColumn, moves: ItemMoves, positions: NDArray[np.int64], values: list[Value | None]
) -> AttributeColumn:
    """Move the values with their items, then set those at the new `positions` int64 [n] to `values`, of the kind.

    A column that stays as it is, is shared.
    """
    if moves.items.changes_nothing and not values:
        return column
    missing = _edit_missing(column, moves, positions, values)
    is_new = moves.origins == NOT_FOUND
    of_movers = np.where(is_new, 0, column.values[np.where(is_new, 0, moves.origins)]).astype(column.values.dtype)
    stored = moves.items.apply(column.values, of_movers)
    if stored is column.values:
        stored = stored.copy()
    if column.kind is AttributeKind.TEXT:
        return _edit_texts(column.vocabulary, stored, missing, positions, values)
    dtype = DTYPES[column.kind]
    stored[positions] = np.array([0 if value is None else value for value in values], dtype)
    return AttributeColumn(column.kind, stored, missing)


def _edit_missing(
    column: AttributeColumn, moves: ItemMoves, positions: NDArray[np.int64], values: list[Value | None]
) -> NDArray[np.bool_] | None:
    is_new = moves.origins == NOT_FOUND
    is_taken_away = np.array([value is None for value in values], bool)
    if column.missing is None:
        if not is_new.any() and not is_taken_away.any():
            return None
        missing = np.zeros(moves.items.new_length, bool)
        missing[moves.items.numbers_of_new()] = is_new
    else:
        of_movers = np.where(is_new, True, column.missing[np.where(is_new, 0, moves.origins)])
        missing = moves.items.apply(column.missing, of_movers)
        if missing is column.missing:
            missing = missing.copy()
    missing[positions] = is_taken_away
    return missing if missing.any() else None


def _edit_texts(
    vocabulary: pa.LargeStringArray,
    codes: NDArray[np.int32],
    missing: NDArray[np.bool_] | None,
    positions: NDArray[np.int64],
    values: list[Value | None],
) -> AttributeColumn:
    """Set `codes`, in place, and keep of the vocabulary, old and new, what occurs."""
    given = sorted({value for value in values if isinstance(value, str)}, key=str.encode)  # as vocabularies ascend
    texts = pa.array(given, pa.large_string())
    size = len(vocabulary)
    places = _lower_bounds(vocabulary, texts)
    is_known = _stand_at(vocabulary, places, texts)
    added = texts.filter(pa.array(~is_known))
    numbers = np.where(is_known, places, size - 1 + np.cumsum(~is_known))  # those that are new, behind all others
    number_of: dict[Value | None, int] = {None: 0, **dict(zip(given, numbers.tolist(), strict=True))}
    codes[positions] = np.array([number_of[value] for value in values], np.int32)

    occurs = np.zeros(size + len(added), bool)
    if len(occurs):
        occurs[codes] = True
        if missing is not None:  # where 0 says nothing
            occurs[0] = ((codes == 0) & ~missing).any()
    splice = Splice(size, np.flatnonzero(~occurs[:size]), places[~is_known])
    if not splice.changes_nothing:
        final = np.concatenate([splice.all_numbers(codes.dtype), splice.numbers_of_new().astype(codes.dtype)])
        codes = final[codes] if len(final) else codes
        vocabulary = splice_texts(vocabulary, splice, added)
        if missing is not None:
            codes[missing] = 0
    return AttributeColumn(AttributeKind.TEXT, codes, missing, vocabulary)


def _lower_bounds(vocabulary: pa.LargeStringArray, texts: pa.LargeStringArray) -> NDArray[np.int64]:
    firsts = np.zeros(len(texts), np.int64)
    return lower_bounds(lambda places: vocabulary.take(pa.array(places)), texts, firsts, firsts + len(vocabulary))


def _stand_at(
    vocabulary: pa.LargeStringArray, places: NDArray[np.int64], texts: pa.LargeStringArray
) -> NDArray[np.bool_]:
    """Bool [n]: whether each text is the one at its place of the vocabulary, where there is such a place."""
    inside = np.flatnonzero(places < len(vocabulary))
    found = pc.equal(vocabulary.take(pa.array(places[inside])), texts.take(pa.array(inside)))
    stand = np.zeros(len(texts), bool)
    stand[inside] = found.to_numpy(zero_copy_only=False)
    return stand
