"""What a catalogue knows of its items beside their SIDs: typed columns, one value an item, for filters to look at.

A column has one form for one content: missing values are 0, `missing` is there only if something is, and a vocabulary
holds the texts that occur and no others. So equal content has equal arrays, and an equal catalogue version. This module
knows no filters and no files.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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
    vocabulary: the texts that occur, ascending by their UTF-8 bytes; None for other kinds.
    """

    kind: AttributeKind
    values: NDArray[Any]
    missing: NDArray[np.bool_] | None = None
    vocabulary: pa.LargeStringArray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, by the name it is stored under, behind the attribute's own."""
        arrays = {"values": self.values}
        if self.missing is not None:
            arrays["missing"] = self.missing
        if self.vocabulary is not None:
            _, offsets, utf8 = self.vocabulary.buffers()
            ends = np.frombuffer(offsets, np.int64)[: len(self.vocabulary) + 1]
            arrays["vocabulary_offsets"] = ends
            arrays["vocabulary_utf8"] = np.frombuffer(utf8, np.uint8)[: ends[-1]]
        return arrays
