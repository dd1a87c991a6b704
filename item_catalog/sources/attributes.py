"""One attribute of a source, batch by batch -> one array of its values. Knows no file."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.attribute_columns import AttributeValueError, attribute_column, attribute_kind
from item_catalog.attributes import DTYPES, AttributeColumn, AttributeKind
from item_catalog.errors import CatalogError
from item_catalog.sources.batch import SourceBatch
from item_catalog.sources.values import values_of_kind


class AttributeCollector:
    """Values of the batches so far, which come one after another.

    `kind` None: that of the first batch's column, which then holds for all.
    """

    def __init__(self, name: str, kind: AttributeKind | None, num_rows: int) -> None:
        self._name = name
        self._kind = kind
        self._values = np.empty(0)
        self._missing = np.zeros(num_rows, bool)
        self._codes: dict[str, int] = {}  # of the texts so far, in the order in which they came

    def add(self, batch: SourceBatch) -> None:
        """Raises CatalogError naming the row, its item, the column, the value and the remedy."""
        written = batch.column(self._name)
        kind = self._kind or self._kind_of(written)
        if not len(self._values):
            self._kind = kind
            self._values = np.empty(len(self._missing), DTYPES[kind])
        try:
            column = attribute_column(self._name, values_of_kind(self._name, written, kind))
        except AttributeValueError as error:
            raise CatalogError(f"{batch.place(error.row)}: {self._name} {error.problem}") from error
        self._values[batch.rows] = column.values if column.vocabulary is None else self._codes_of(column)
        if column.missing is not None:
            self._missing[batch.rows] = column.missing

    def values(self) -> pa.Array:
        """All of them: numbers or booleans, or dictionary-encoded text; null where one is missing."""
        values = pa.array(self._values, mask=self._missing if self._missing.any() else None)
        if self._kind is not AttributeKind.TEXT:
            return values
        return pa.DictionaryArray.from_arrays(values, pa.array(self._codes, pa.large_string()))

    def _kind_of(self, written: pa.Array) -> AttributeKind:
        kind = attribute_kind(written.type)
        if kind is not None:
            return kind
        if pa.types.is_null(written.type):
            raise CatalogError(f"{self._name} has no value in any row; say its kind, as {self._name}:number")
        raise CatalogError(
            f"{self._name} is a column of {written.type}; give text, integers, numbers, booleans or times"
        )

    def _codes_of(self, column: AttributeColumn) -> NDArray[np.int32]:
        """The codes of a batch's texts among all so far."""
        assert column.vocabulary is not None
        codes = [self._codes.setdefault(text, len(self._codes)) for text in column.vocabulary.to_pylist()]
        places = np.array(codes or [0], np.int32)  # without any text all values are missing, and 0
        return places[column.values]  # type: ignore[no-any-return]
