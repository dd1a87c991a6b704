"""Which items have a value that is allowed: a look at one column, a slice at a time. Knows no filters and no tries."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.attributes import AttributeColumn, AttributeKind, Value
from item_catalog.filtering.allowed_values import AllowedValues, closed_range

# A slice of the items -> whether each has such a value, bool [items of the slice].
ColumnTest: TypeAlias = Callable[[slice], NDArray[np.bool_]]

_FEW = 8  # up to so many values are compared one by one; more are looked up
_HASH_BITS = 16  # a table that fits the processor's cache; a thousand values fill a sixty-fourth of it


def column_test(column: AttributeColumn, allowed: AllowedValues) -> ColumnTest:
    """Whether items have a value that is allowed; or none, where only certain values are barred.

    Values and bounds are of the column's kind.
    """
    allowed = allowed.folded()
    tests = []
    if allowed.listed is not None:
        tests.append(_is_one_of(column, list(allowed.listed.values())))
    if allowed.lower is not None or allowed.upper is not None:
        tests.append(_is_in_range(column, allowed))
    needs_value = bool(tests)
    if allowed.barred is not None:
        is_barred = _is_one_of(column, list(allowed.barred.values()))
        tests.append(lambda block: ~is_barred(block))

    def passes(block: slice) -> NDArray[np.bool_]:
        passing = tests[0](block)
        for test in tests[1:]:
            passing &= test(block)
        if column.missing is not None:  # what stands in the place of a missing value is no value
            passing = passing & ~column.missing[block] if needs_value else passing | column.missing[block]
        return passing

    return passes


def _is_in_range(column: AttributeColumn, allowed: AllowedValues) -> ColumnTest:
    first, last = closed_range(column.kind, allowed.lower, allowed.upper)
    values = column.values
    if allowed.upper is None:
        return lambda block: values[block] >= first
    if allowed.lower is None:
        return lambda block: values[block] <= last
    return lambda block: (values[block] >= first) & (values[block] <= last)


def _is_one_of(column: AttributeColumn, wanted: list[Value]) -> ColumnTest:
    values, sought = column.values, _as_stored(column, wanted)
    if len(sought) <= _FEW:
        return lambda block: _equals_any(values[block], sought)
    if column.kind is AttributeKind.TEXT:
        is_sought = np.zeros(len(column.vocabulary or ()), bool)
        is_sought[sought] = True
        return lambda block: is_sought[values[block]]
    return _is_among(values, sought)


def _is_among(values: NDArray[Any], sought: NDArray[Any]) -> ColumnTest:
    """For many 8-byte values, ascending. Their hashes sift out nearly all items, for a search for each takes long."""
    may_be_sought = np.zeros(1 << _HASH_BITS, bool)
    may_be_sought[_hashes(sought)] = True

    def passes(block: slice) -> NDArray[np.bool_]:
        found = may_be_sought[_hashes(values[block])]
        places = np.flatnonzero(found)
        candidates = values[block][places]
        found[places] = sought[np.searchsorted(sought[:-1], candidates)] == candidates
        return found

    return passes


def _hashes(values: NDArray[Any]) -> NDArray[np.int64]:
    """Multiplied by 2**64 over the golden ratio, the upper bits depend on all."""
    mixed = values.view(np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return (mixed >> np.uint64(64 - _HASH_BITS)).view(np.int64)


def _equals_any(values: NDArray[Any], sought: NDArray[Any]) -> NDArray[np.bool_]:
    equals = np.zeros(len(values), bool)
    for one in sought:
        equals |= values == one
    return equals


def _as_stored(column: AttributeColumn, wanted: list[Value]) -> NDArray[Any]:
    """Values as the column holds them, ascending, without those that it cannot hold."""
    match column.kind:
        case AttributeKind.TEXT:
            assert column.vocabulary is not None
            codes = [_code(column.vocabulary, str(text)) for text in wanted]
            stored: list[Any] = [code for code in codes if code is not None]
        case AttributeKind.NUMBER:
            stored = [number for number in wanted if float(number) == number]  # a large integer may be no float64
        case _:
            stored = list(wanted)
    return np.array(stored, column.values.dtype)


def _code(vocabulary: pa.LargeStringArray, text: str) -> int | None:
    place = bisect_left(range(len(vocabulary)), text, key=lambda code: vocabulary[code].as_py())
    return place if place < len(vocabulary) and vocabulary[place].as_py() == text else None
