"""The ids of all items of a catalogue, in catalogue order, looked up both ways without a Python object per item.

Two kinds with one interface: IntegerIds and TextIds. Each keeps, beside the ids, the permutation that sorts them, so
that finding an id is a binary search over arrays that may be mapped from disk. Outside, every id is text: integers are
written in decimal. This module knows no SIDs, and of the catalogue's order only what it is told.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from item_catalog.errors import CatalogError
from item_catalog.id_columns import INTEGER_SPELLING, MAX_ID_BYTES, IdColumn, exceeds_previous, is_ascending
from item_catalog.indices import checked_indices
from item_catalog.lockstep import count_below
from item_catalog.trie import NOT_FOUND

_DECIMAL = re.compile(INTEGER_SPELLING)
_INT64 = np.iinfo(np.int64)

# Up to so many ids are looked up one by one; beyond it a search for all at once is faster: 0.3 ms against 0.4 for 100
# among a million, 8 ms against 40 for 10,000.
_FEW = 80


@dataclass(frozen=True, slots=True, eq=False)
class IntegerIds:
    """Ids that are numbers.

    values: int64 [num_items], in catalogue order.
    order: int32 (int64 from 2**31 items) [num_items], the positions by ascending id.
    """

    KIND: ClassVar[str] = "integer"

    values: NDArray[np.int64]
    order: NDArray[np.signedinteger]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def column(self) -> IdColumn:
        """The ids in catalogue order, as building and checking see them."""
        return self.values

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Ids [n] -> their positions int64 [n], NOT_FOUND for an id that no item has."""
        wanted, is_number = parse_integers(ids)
        # searchsorted would first copy all of order to int64
        ranks = count_below(len(self), len(wanted), lambda ranks: self.values.take(self.order.take(ranks)) < wanted)
        positions = self.order[np.minimum(ranks, len(self) - 1)].astype(np.int64)
        return np.where(is_number & (self.values[positions] == wanted), positions, NOT_FOUND)

    def take(self, positions: ArrayLike) -> list[str]:
        """Positions int [n] -> their ids. Raises CatalogError for a position that is none."""
        return [str(number) for number in self.values[checked_indices("positions", positions, len(self))].tolist()]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, by the name it is stored under."""
        return {"item_ids": self.values, "item_order": self.order}

    def check(self, item_offsets: NDArray[np.integer]) -> None:
        """Raise CatalogError unless ids ascend within each leaf of `item_offsets`, and `order` sorts them."""
        _check_order(self, item_offsets)


@dataclass(frozen=True, slots=True, eq=False)
class TextIds:
    """Ids that are UTF-8 strings, one after another.

    offsets: int64 [num_items + 1]; the id at position i is utf8[offsets[i] : offsets[i + 1]], 1 to 256 bytes.
    utf8: uint8 [offsets[-1]].
    order: int32 (int64 from 2**31 items) [num_items], the positions by ascending id, in the order of UTF-8 bytes.
    """

    KIND: ClassVar[str] = "text"

    offsets: NDArray[np.int64]
    utf8: NDArray[np.uint8]
    order: NDArray[np.signedinteger]

    def __len__(self) -> int:
        return len(self.order)

    @property
    def column(self) -> pa.LargeStringArray:
        """The ids in catalogue order, as building and checking see them; shares the memory of the arrays."""
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(self.offsets), pa.py_buffer(self.utf8))

    def find(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Ids [n] -> their positions int64 [n], NOT_FOUND for an id that no item has."""
        # A lone surrogate is no text that any id has; passing it through finds nothing instead of raising.
        wanted = [text.encode(errors="surrogatepass") for text in ids]
        return self._find_together(wanted) if len(wanted) > _FEW else self._find_each(wanted)

    def take(self, positions: ArrayLike) -> list[str]:
        """Positions int [n] -> their ids. Raises CatalogError for a position that is none."""
        return [self._id_at(position).decode() for position in checked_indices("positions", positions, len(self))]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, by the name it is stored under."""
        return {"item_id_offsets": self.offsets, "item_id_utf8": self.utf8, "item_order": self.order}

    def check(self, item_offsets: NDArray[np.integer]) -> None:
        """Raise CatalogError unless ids ascend within each leaf of `item_offsets`, and `order` sorts them.

        Before that, unless `offsets` cut `utf8` into ids of 1 to 256 bytes of valid UTF-8.
        """
        lengths = np.diff(self.offsets)
        if self.offsets[0] != 0 or self.offsets[-1] != len(self.utf8):
            raise CatalogError("item ids: their offsets do not span their bytes; rebuild the catalogue")
        if not (lengths.min() >= 1 and lengths.max() <= MAX_ID_BYTES):
            raise CatalogError(f"item ids: one is not 1 to {MAX_ID_BYTES} bytes long; rebuild the catalogue")
        try:
            self.column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CatalogError(f"item ids: {error}; rebuild the catalogue") from error
        _check_order(self, item_offsets)

    def _find_each(self, ids: Sequence[bytes]) -> NDArray[np.int64]:
        """A binary search for each. Views of the memory give out elements in half the time that arrays take."""
        order, offsets, utf8 = self.order.data, self.offsets.data, self.utf8.data

        def id_at(position: int) -> bytes:
            return bytes(utf8[offsets[position] : offsets[position + 1]])

        def find(wanted: bytes) -> int:
            rank = bisect_left(order, wanted, key=id_at)
            return order[rank] if rank < len(order) and id_at(order[rank]) == wanted else NOT_FOUND

        return np.array([find(one) for one in ids], np.int64)

    def _find_together(self, ids: Sequence[bytes]) -> NDArray[np.int64]:
        """One binary search for all."""
        wanted = pa.array(ids, pa.large_binary())
        column = self.column.cast(pa.large_binary())

        def are_below(ranks: NDArray[np.int64]) -> NDArray[np.bool_]:
            found: NDArray[np.bool_] = pc.less(column.take(pa.array(self.order[ranks])), wanted).to_numpy(
                zero_copy_only=False
            )
            return found

        ranks = count_below(len(self), len(ids), are_below)
        positions = self.order[np.minimum(ranks, len(self) - 1)].astype(np.int64)
        is_found = pc.equal(column.take(pa.array(positions)), wanted).to_numpy(zero_copy_only=False)
        return np.where(is_found, positions, NOT_FOUND)

    def _id_at(self, position: np.int64) -> bytes:
        return self.utf8[self.offsets[position] : self.offsets[position + 1]].tobytes()


ItemIds: TypeAlias = IntegerIds | TextIds


def item_ids_from_column(column: IdColumn, order: NDArray[np.signedinteger]) -> ItemIds:
    """Ids in catalogue order and the positions by ascending id -> the kind of ids that `column` holds.

    `column` must not be a slice of a longer one; what `take` returns never is.
    """
    if isinstance(column, np.ndarray):
        return IntegerIds(column, order)
    _, offsets_buffer, utf8_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[: len(column) + 1]
    return TextIds(offsets, np.frombuffer(utf8_buffer, np.uint8)[: offsets[-1]], order)


def parse_integers(texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Texts [n] -> int64 [n], 0 for what is no id of an integer catalogue; and bool [n], what is."""
    try:
        numbers = np.array([int(text) for text in texts], np.int64)
        if [str(number) for number in numbers.tolist()] == list(texts):  # far sooner told of all than of each
            return numbers, np.ones(len(texts), bool)
    except (ValueError, OverflowError):
        pass
    parsed = [_parse_int64(text) for text in texts]
    is_number = np.array([number is not None for number in parsed], bool)
    return np.array([number or 0 for number in parsed], np.int64), is_number


def _check_order(item_ids: ItemIds, item_offsets: NDArray[np.integer]) -> None:
    column, order = item_ids.column, item_ids.order
    may_fall = np.zeros(len(item_ids), bool)
    may_fall[item_offsets[:-1]] = True  # a leaf's first id has none before it
    if not np.all(may_fall | exceeds_previous(column)):
        raise CatalogError("item ids: those on one SID are not ascending; rebuild the catalogue")
    # Strictly ascending ids are distinct, so an order that makes them so is a permutation.
    if order.min() < 0 or order.max() >= len(order) or not is_ascending(column, order):
        raise CatalogError("item ids: item_order does not sort them, or two items have one id; rebuild the catalogue")


def _parse_int64(text: str) -> int | None:
    if not _DECIMAL.fullmatch(text):
        return None
    number = int(text)
    return number if _INT64.min <= number <= _INT64.max else None
