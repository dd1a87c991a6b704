"""Values of one attribute, as somebody has them -> a column in the one form that equal values have; and back.

What a value is follows from the type of the array:

    text      strings, plain or dictionary-encoded; of 1 to 256 bytes
    integer   integers within int64; dates and timestamps, as whole seconds since 1970 (UTC, rounded down)
    number    floats and decimals, as float64; -0.0 becomes 0.0, infinity is refused
    boolean   booleans

An Arrow null is a missing value, and so is NaN, as which numpy and pandas write one among floats. This module knows no
catalogue and no files.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from item_catalog.attributes import (
    MAX_TEXT_BYTES,
    AttributeColumn,
    AttributeKind,
    Value,
    check_attribute_name,
)
from item_catalog.errors import CatalogError
from item_catalog.indices import checked_indices
from item_catalog.utf8 import are_utf8

_TICKS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_PER_DAY = 86_400
_MAX_INT64 = np.iinfo(np.int64).max


class AttributeValueError(CatalogError):
    """The value in `row`, counted from 0, is none that the attribute `name` may have; `problem` shows it."""

    def __init__(self, name: str, row: int, problem: str) -> None:
        super().__init__(f"attribute {name}: row {row} {problem}")
        self.row = row
        self.problem = problem


def attribute_column(name: str, values: pa.Array | pa.ChunkedArray | NDArray[Any]) -> AttributeColumn:
    """Values [n], None or null or NaN where one is missing -> their column; may share memory with `values`.

    Raises CatalogError naming the attribute, the row (counted from 0), the value and the remedy; it is an
    AttributeValueError if there is such a row.
    """
    check_attribute_name(name)
    column = _arrow_array(name, values)
    kind = attribute_kind(column.type)
    if kind is None:
        raise CatalogError(
            f"attribute {name}: values of {column.type}; give text, integers, numbers, booleans or times"
        )
    if kind is AttributeKind.TEXT:
        return _text_column(name, column)
    if kind is AttributeKind.NUMBER:
        return _number_column(name, column)
    if kind is AttributeKind.INTEGER:
        plain = _integers(name, column)
    else:
        plain = column.fill_null(False).to_numpy(zero_copy_only=False)
    return AttributeColumn(kind, plain, _missing(column))


def attribute_kind(arrow_type: pa.DataType) -> AttributeKind | None:
    """What values of an Arrow type are; None for a type that no attribute has."""
    if pa.types.is_dictionary(arrow_type):
        return AttributeKind.TEXT if attribute_kind(arrow_type.value_type) is AttributeKind.TEXT else None
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return AttributeKind.TEXT
    if pa.types.is_integer(arrow_type) or pa.types.is_date(arrow_type) or pa.types.is_timestamp(arrow_type):
        return AttributeKind.INTEGER
    if pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return AttributeKind.NUMBER
    return AttributeKind.BOOLEAN if pa.types.is_boolean(arrow_type) else None


def take_rows(column: AttributeColumn, rows: NDArray[np.integer]) -> AttributeColumn:
    """The values of `rows` int [m], in that order, as a column of its own; a row may come several times, or not."""
    missing = None if column.missing is None else column.missing[rows]
    if missing is not None and not missing.any():
        missing = None
    if column.vocabulary is None:
        return AttributeColumn(column.kind, column.values[rows], missing)
    return _with_texts_that_occur(column.values[rows], missing, column.vocabulary)


def attribute_values(column: AttributeColumn, positions: ArrayLike) -> list[Value | None]:
    """Positions int [n] -> their values, None where one is missing. Raises CatalogError for a position that is none."""
    wanted = checked_indices("positions", positions, len(column))
    missing = None if column.missing is None else column.missing[wanted]
    values = pa.array(column.values[wanted], mask=missing)
    if column.vocabulary is not None:
        values = column.vocabulary.take(values)
    return values.to_pylist()  # type: ignore[no-any-return]


def _arrow_array(name: str, values: pa.Array | pa.ChunkedArray | NDArray[Any]) -> pa.Array:
    if isinstance(values, np.ndarray):
        values = values.astype(values.dtype.newbyteorder("="), copy=False)  # Arrow takes no other byte order
    try:
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column  # many texts come in chunks
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise CatalogError(f"attribute {name}: {error}; give one value of one type for each row") from error


def _missing(column: pa.Array) -> NDArray[np.bool_] | None:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _integers(name: str, column: pa.Array) -> NDArray[np.int64]:
    if pa.types.is_uint64(column.type):
        is_beyond = pc.greater(column, pa.scalar(_MAX_INT64, pa.uint64())).fill_null(False)
        if is_beyond.true_count:
            row = is_beyond.index(True).as_py()
            raise AttributeValueError(name, row, f"has {column[row]}; give integers below 2**63")
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
        return column.fill_null(0).to_numpy().astype(np.int64) * _SECONDS_PER_DAY  # type: ignore[no-any-return]
    ticks: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy()
    if pa.types.is_date64(column.type):
        return ticks // _TICKS_PER_SECOND["ms"]
    if pa.types.is_timestamp(column.type):
        return ticks // _TICKS_PER_SECOND[column.type.unit]
    return ticks


def _number_column(name: str, column: pa.Array) -> AttributeColumn:
    written = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
    is_missing = np.isnan(written)
    numbers = np.where(is_missing, 0.0, written)
    numbers += 0.0  # makes 0.0 of -0.0
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        row = int(np.argmin(is_finite))
        raise AttributeValueError(name, row, f"has {numbers[row]}; give finite numbers, or no value")
    return AttributeColumn(AttributeKind.NUMBER, numbers, is_missing if is_missing.any() else None)


def _text_column(name: str, column: pa.Array) -> AttributeColumn:
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    # Somebody else's dictionary may say one text twice, and hold null, or texts of no row.
    written = encoded.dictionary.cast(pa.large_string())
    texts = pc.unique(written).drop_null()
    texts = texts.take(pc.sort_indices(texts))
    codes = pc.index_in(written, value_set=texts).take(encoded.indices)
    canonical = _with_texts_that_occur(codes.fill_null(0).to_numpy(), _missing(codes), texts)
    _check_texts(name, canonical)
    return canonical


def _check_texts(name: str, column: AttributeColumn) -> None:
    texts = column.vocabulary
    assert texts is not None
    lengths = pc.binary_length(texts).to_numpy()
    is_wrong = (lengths < 1) | (lengths > MAX_TEXT_BYTES) | ~are_utf8(texts)
    if is_wrong.any():
        is_wrong_row = is_wrong[column.values]
        if column.missing is not None:
            is_wrong_row &= ~column.missing
        row = int(np.argmax(is_wrong_row))
        text = texts[int(column.values[row])].cast(pa.large_binary()).as_py()
        shown = repr(text.decode(errors="replace")) if len(text) <= MAX_TEXT_BYTES else f"{len(text)} bytes"
        problem = f"has {shown}; give 1 to {MAX_TEXT_BYTES} bytes of UTF-8, or no value"
        raise AttributeValueError(name, row, problem)


def _with_texts_that_occur(
    codes: NDArray[np.int32], missing: NDArray[np.bool_] | None, texts: pa.LargeStringArray
) -> AttributeColumn:
    """Codes into `texts`, which ascend -> the column without those that no row has."""
    occurs = np.zeros(len(texts), bool)
    occurs[codes if missing is None else codes[~missing]] = True
    if occurs.all():
        return AttributeColumn(AttributeKind.TEXT, codes, missing, texts)
    places = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    codes = places[codes]
    if missing is not None:
        codes[missing] = 0  # the text that stood there may be gone
    return AttributeColumn(AttributeKind.TEXT, codes, missing, texts.filter(pa.array(occurs)))
