"""What a catalogue knows of its items beside their SIDs: typed columns, one value an item, for filters to look at.

A column has one form for one content: missing values are 0, `missing` is there only if something is, and a vocabulary
holds the texts that occur and no others. So equal content has equal arrays, and an equal catalogue version. This module
knows no filters and no files.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.errors import CatalogError

Value: TypeAlias = str | int | float | bool

# A name is also a part of file names, and what people type behind --where.
ATTRIBUTE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
MAX_TEXT_BYTES = 256


class AttributeKind(Enum):
    """What the values of an attribute are."""

    TEXT = "text"  # a category, a region: 1 to 256 bytes of UTF-8
    INTEGER = "integer"  # int64; a count, a time in seconds since 1970
    NUMBER = "number"  # float64, finite; a price
    BOOLEAN = "boolean"


DTYPES: dict[AttributeKind, np.dtype[Any]] = {
    AttributeKind.TEXT: np.dtype(np.int32),
    AttributeKind.INTEGER: np.dtype(np.int64),
    AttributeKind.NUMBER: np.dtype(np.float64),
    AttributeKind.BOOLEAN: np.dtype(np.bool_),
}


@dataclass(frozen=True, slots=True, eq=False)
class AttributeColumn:
    """One attribute of all items, in catalogue order.

    values: [num_items], of the kind's dtype: int64, float64, bool; for texts int32, the place in `vocabulary`.
    missing: bool [num_items], which items have no value; None when all have one.
    vocabulary: the texts that occur, ascending by their UTF-8 bytes, never a slice; None for other kinds.
    """

    kind: AttributeKind
    values: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    vocabulary: pa.LargeStringArray | None = None

    @classmethod
    def from_arrays(cls, name: str, kind: AttributeKind, arrays: Mapping[str, NDArray[Any]]) -> "AttributeColumn":
        """The inverse of `arrays`; shares their memory, and looks at next to none of it.

        Raises CatalogError, naming the attribute `name`, when its texts would lie outside their bytes.
        """
        vocabulary = None
        if kind is AttributeKind.TEXT:
            offsets = arrays.get("vocabulary_offsets", np.zeros(1, np.int64))
            utf8 = arrays.get("vocabulary_utf8", np.zeros(0, np.uint8))
            buffers = (pa.py_buffer(offsets), pa.py_buffer(utf8))
            try:
                vocabulary = pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)
            except pa.ArrowInvalid as error:
                raise _broken(name, f"texts: {error}") from error
        return cls(kind, arrays["values"], arrays.get("missing"), vocabulary)

    def __len__(self) -> int:
        return len(self.values)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, by the name it is stored under, behind the attribute's own. None of them is empty."""
        arrays = {"values": self.values}
        if self.missing is not None:
            arrays["missing"] = self.missing
        if self.vocabulary:  # no text at all, if every item lacks one
            _, offsets, utf8 = self.vocabulary.buffers()
            ends = np.frombuffer(offsets, np.int64)[: len(self.vocabulary) + 1]
            arrays["vocabulary_offsets"] = ends
            arrays["vocabulary_utf8"] = np.frombuffer(utf8, np.uint8)[: ends[-1]]
        return arrays

    def check(self, name: str, num_items: int) -> None:
        """Raise CatalogError naming the attribute `name` and the first broken invariant. Linear in the items."""
        if (self.values.dtype, self.values.shape) != (DTYPES[self.kind], (num_items,)):
            raise _broken(name, f"{self.values.dtype} of shape {list(self.values.shape)} for {num_items} items")
        if self.kind is AttributeKind.BOOLEAN and self.values.view(np.uint8).max() > 1:
            raise _broken(name, "a value is neither 0 nor 1")
        if self.missing is not None:
            self._check_missing(name, self.missing)
        if self.kind is AttributeKind.NUMBER:
            if not np.isfinite(self.values).all():
                raise _broken(name, "a value is not finite")
            if np.signbit(self.values[self.values == 0]).any():
                raise _broken(name, "a value is -0.0")
        if (self.vocabulary is None) == (self.kind is AttributeKind.TEXT):
            raise _broken(name, f"{self.kind.value} values {'without' if self.vocabulary is None else 'with'} texts")
        if self.vocabulary is not None:
            _check_texts(name, self.vocabulary)
            self._check_codes(name, self.vocabulary)

    def _check_missing(self, name: str, missing: NDArray[np.bool_]) -> None:
        if (missing.dtype, missing.shape) != (np.dtype(np.bool_), self.values.shape):
            raise _broken(name, f"missing: {missing.dtype} of shape {list(missing.shape)} for {len(self)} items")
        if missing.view(np.uint8).max() > 1:
            raise _broken(name, "missing: a value is neither 0 nor 1")
        if not missing.any():
            raise _broken(name, "missing: no value is")
        if self.values[missing].any():
            raise _broken(name, "a missing value is not 0")

    def _check_codes(self, name: str, texts: pa.LargeStringArray) -> None:
        codes = self.values if self.missing is None else self.values[~self.missing]
        if len(codes) and not (codes.min() >= 0 and codes.max() < len(texts)):
            raise _broken(name, f"a value is not one of {len(texts)} texts")
        is_used = np.zeros(len(texts), bool)
        is_used[codes] = True
        if not is_used.all():
            raise _broken(name, f"no item has the text {texts[int(np.argmin(is_used))].as_py()!r}")


def check_attribute_name(name: str) -> None:
    """Raise CatalogError unless an attribute may be called `name`."""
    if not ATTRIBUTE_NAME.fullmatch(name):
        raise CatalogError(
            f"attribute {name!r}: no name; give 1 to 63 of a-z, 0-9 and _, of which the first is a letter"
        )


def _check_texts(name: str, texts: pa.LargeStringArray) -> None:
    """The offsets first: whoever reads texts by wrong ones reads memory that is not theirs."""
    _, offsets, utf8 = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(texts) + 1]
    if ends[0] != 0 or ends[-1] != utf8.size:
        raise _broken(name, "the offsets of its texts do not span their bytes")
    lengths = np.diff(ends)
    if len(texts) and not (lengths.min() >= 1 and lengths.max() <= MAX_TEXT_BYTES):
        raise _broken(name, f"a text is not 1 to {MAX_TEXT_BYTES} bytes long")
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _broken(name, f"texts: {error}") from error
    if not pc.all(pc.greater(texts[1:], texts[:-1]), min_count=0).as_py():
        raise _broken(name, "its texts are not ascending")


def _broken(name: str, problem: str) -> CatalogError:
    return CatalogError(f"attribute {name}: {problem}; rebuild the catalogue")
