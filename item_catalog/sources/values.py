"""A column as a file has it -> values of the kind that an attribute shall have, strictly.

Text becomes an integer, number or boolean only if it spells one; a number becomes an integer only if it is whole. Knows
no rows but those of the column, and no file.
"""

from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from item_catalog.attribute_columns import AttributeValueError, attribute_kind
from item_catalog.attributes import AttributeKind
from item_catalog.errors import CatalogError
from item_catalog.sources.batch import first

_TEXT, _INTEGER, _NUMBER, _BOOLEAN = (
    AttributeKind.TEXT,
    AttributeKind.INTEGER,
    AttributeKind.NUMBER,
    AttributeKind.BOOLEAN,
)
_ARROW_TYPES = {_TEXT: pa.large_string(), _INTEGER: pa.int64(), _NUMBER: pa.float64(), _BOOLEAN: pa.bool_()}


class _Spelling(NamedTuple):
    pattern: str
    example: str


# No leading zeros: what is written "007" is no number.
_SPELLINGS = {
    _INTEGER: _Spelling(r"^-?(0|[1-9][0-9]{0,18})$", "an integer such as 12, below 2**63"),
    _NUMBER: _Spelling(r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$", "a number such as 12.5"),
    _BOOLEAN: _Spelling(r"^([Tt]rue|TRUE|[Ff]alse|FALSE|0|1)$", "true or false"),
}


def typed_texts(texts: pa.LargeStringArray) -> pa.Array:
    """Texts of a file that knows no types -> values of the narrowest kind that all of them spell; null stays null.

    Where a whole number would lose digits as a float, all stays text.
    """
    if texts.null_count == len(texts):
        return pa.nulls(len(texts))
    kind = next((kind for kind in _SPELLINGS if first(_misspelt(texts, kind)) < 0), _TEXT)
    if kind is _NUMBER and not _are_exact(texts):
        return texts
    return texts.cast(_ARROW_TYPES[kind])


def values_of_kind(name: str, column: pa.Array, kind: AttributeKind) -> pa.Array:
    """The same values in a type whose `attribute_kind` is `kind`; null stays null.

    Raises AttributeValueError for a value that is none of `kind`, CatalogError for a column that has no such values.
    """
    if pa.types.is_null(column.type):
        return column.cast(_ARROW_TYPES[kind])
    written = attribute_kind(column.type)
    if written is kind:
        return column
    match written, kind:
        case AttributeKind.TEXT, _:
            return _spelt(name, column.cast(pa.large_string()), kind)
        case AttributeKind.INTEGER, AttributeKind.TEXT:
            return column.cast(pa.large_string())
        case AttributeKind.INTEGER, AttributeKind.NUMBER:
            return column.cast(pa.float64(), safe=False)
        case AttributeKind.INTEGER, AttributeKind.BOOLEAN:
            is_wrong = pc.invert(pc.is_in(column, pa.array([0, 1, None], column.type)))
            return _require(name, column, is_wrong, _SPELLINGS[_BOOLEAN].example).cast(pa.bool_())
        case AttributeKind.NUMBER, AttributeKind.INTEGER:
            return _whole(name, column.cast(pa.float64()))
    raise CatalogError(f"{name} is a column of {column.type}; that is no {kind.value}")


def _spelt(name: str, texts: pa.Array, kind: AttributeKind) -> pa.Array:
    _require(name, texts, _misspelt(texts, kind), _SPELLINGS[kind].example)
    return texts.cast(_ARROW_TYPES[kind])


def _misspelt(texts: pa.Array, kind: AttributeKind) -> pa.Array:
    """Booleans [n], null where the text is."""
    is_wrong = pc.invert(pc.match_substring_regex(texts, _SPELLINGS[kind].pattern))
    if kind is not _INTEGER or pc.any(is_wrong).as_py():
        return is_wrong
    try:
        texts.cast(pa.int64())
    except pa.ArrowInvalid:  # one of them has 19 digits, and those too large
        return pa.array([text is not None and not -(2**63) <= int(text) < 2**63 for text in texts.to_pylist()])
    return is_wrong


def _are_exact(numbers: pa.Array) -> bool:
    """Whether a float can be every whole number among the texts. Up to 15 digits one always can."""
    is_long = pc.match_substring_regex(numbers, "^-?[0-9]{16,}$")
    return all(Decimal(float(text)) == Decimal(text) for text in numbers.filter(is_long).to_pylist())


def _whole(name: str, numbers: pa.Array) -> pa.Array:
    """Numbers as integers: pandas writes integers as floats when one is missing, and NaN for that one."""
    values = numbers.fill_null(np.nan).to_numpy()
    is_missing = np.isnan(values)
    is_whole = (np.floor(values) == values) & (np.abs(values) < 2**63)
    _require(name, numbers, pa.array(~is_whole & ~is_missing), _SPELLINGS[_INTEGER].example)
    return pa.array(np.where(is_missing, 0, values).astype(np.int64), mask=is_missing)


def _require(name: str, column: pa.Array, is_wrong: pa.Array, wanted: str) -> pa.Array:
    """`column`, or an error for the first row where `is_wrong` is true."""
    row = first(is_wrong)
    if row >= 0:
        raise AttributeValueError(name, row, f"has {column[row].as_py()!r}; give {wanted}, or no value")
    return column
