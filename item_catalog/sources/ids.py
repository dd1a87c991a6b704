"""The item ids of a source, batch by batch -> one column: numbers as long as every id is one, else text.

Text that spells an integer as `str` would is a number too, so nothing is lost when a later id makes all of them text.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.id_columns import INTEGER_SPELLING, IdColumn
from item_catalog.sources.batch import SourceBatch, first, is_text

_DECIMAL = f"^({INTEGER_SPELLING})$"
_REWRITTEN_AT_ONCE = 1 << 17


class IdCollector:
    """Ids of the batches so far, which come one after another."""

    def __init__(self, num_rows: int) -> None:
        self._integers = np.empty(num_rows, np.int64)
        self._texts: _TextBuffer | None = None  # in place of integers, once an id is none

    def add(self, batch: SourceBatch) -> None:
        """Raises CatalogError for ids that are neither integers within int64 nor text."""
        written = batch.item_ids
        integers = _integers(batch, written)
        if self._texts is None and integers is not None:
            self._integers[batch.rows] = integers
            return
        if self._texts is None:
            self._texts = _TextBuffer(len(self._integers))
            for start in range(0, batch.first_row, _REWRITTEN_AT_ONCE):
                stop = min(start + _REWRITTEN_AT_ONCE, batch.first_row)
                self._texts.append(pa.array(self._integers[start:stop]).cast(pa.large_string()))
            self._integers = self._integers[:0]
        self._texts.append(written.cast(pa.large_string()))

    def column(self) -> IdColumn:
        """All of them; the collector takes no more."""
        return self._integers if self._texts is None else self._texts.column()


def _integers(batch: SourceBatch, written: pa.Array) -> NDArray[np.int64] | None:
    if pa.types.is_integer(written.type):
        try:
            return written.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
        except pa.ArrowInvalid:
            row = first(pc.greater(written, pa.scalar(np.iinfo(np.int64).max, pa.uint64())))
            raise CatalogError(
                f"row {batch.first_row + row} has id {written[row]}, beyond int64; give ids that large as text"
            ) from None
    if not is_text(written):
        raise CatalogError(f"item_id is a column of {written.type}; give integers or text")
    if not pc.all(pc.match_substring_regex(written, _DECIMAL)).as_py():
        return None
    try:
        return written.cast(pa.int64()).to_numpy()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:  # too large for an integer: it stays text
        return None


class _TextBuffer:
    """Strings appended to one array, without a second copy of all of them at any time."""

    def __init__(self, num_texts: int) -> None:
        self._offsets = np.zeros(num_texts + 1, np.int64)
        self._utf8 = pa.BufferOutputStream()
        self._filled = 0

    def append(self, texts: pa.LargeStringArray) -> None:
        _, offsets, utf8 = texts.buffers()
        ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        begin = int(self._offsets[self._filled])
        self._offsets[self._filled + 1 : self._filled + 1 + len(texts)] = begin + ends[1:] - ends[0]
        self._filled += len(texts)
        if ends[-1] > ends[0]:
            self._utf8.write(utf8.slice(int(ends[0]), int(ends[-1] - ends[0])))

    def column(self) -> pa.LargeStringArray:
        buffers = (pa.py_buffer(self._offsets), self._utf8.getvalue())
        return pa.LargeStringArray.from_buffers(self._filled, *buffers)
