"""Columns of attributes have one form for one content, whatever the values come as; bad values are named."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.attribute_columns import attribute_column, attribute_values, take_rows
from item_catalog.attributes import AttributeColumn, AttributeKind
from item_catalog.errors import CatalogError
from tests.item_catalog.attribute_strategies import columns, written

KINDS = st.sampled_from(AttributeKind)


def all_values(column: AttributeColumn) -> list:
    return attribute_values(column, np.arange(len(column)))


def assert_same(one: AttributeColumn, other: AttributeColumn) -> None:
    assert one.kind is other.kind
    assert one.arrays().keys() == other.arrays().keys()
    for part, array in one.arrays().items():
        np.testing.assert_array_equal(array.view(np.uint8), other.arrays()[part].view(np.uint8), part, strict=True)


@settings(max_examples=100)
@given(st.data(), KINDS)
def test_values_come_back_as_they_were(data: st.DataObject, kind: AttributeKind):
    values = data.draw(columns(kind, data.draw(st.integers(1, 12))))
    column = attribute_column("x", values)
    column.check("x", len(values))
    assert column.kind is kind
    found = all_values(column)
    assert found == values.to_pylist()
    assert [type(value) for value in found] == [type(value) for value in values.to_pylist()]


@settings(max_examples=100)
@given(st.data(), KINDS)
def test_rows_taken_are_the_column_of_those_rows(data: st.DataObject, kind: AttributeKind):
    values = data.draw(columns(kind, data.draw(st.integers(1, 12))))
    rows = np.array(data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=12)))
    taken = take_rows(attribute_column("x", values), rows)
    assert_same(taken, attribute_column("x", values.take(pa.array(rows))))
    assert not np.shares_memory(taken.values, values.buffers()[-1])


@settings(max_examples=50)
@given(st.data(), KINDS)
def test_arrays_lead_back_to_the_column(data: st.DataObject, kind: AttributeKind):
    column = attribute_column("x", data.draw(columns(kind, data.draw(st.integers(1, 12)))))
    again = AttributeColumn.from_arrays("x", kind, column.arrays())
    assert_same(again, column)
    assert all_values(again) == all_values(column)
    assert all(array.size for array in column.arrays().values())


TEXTS = ["b", None, "a", "b"]
INTEGERS = [3, -1, 0]
SAME_COLUMN = [
    pytest.param(pa.array(TEXTS), pa.array(TEXTS, pa.large_string()), id="large strings"),
    pytest.param(pa.array(TEXTS), pa.array(TEXTS, pa.string_view()), id="string views"),
    pytest.param(pa.array(TEXTS), pa.array(TEXTS).dictionary_encode(), id="dictionary"),
    pytest.param(pa.array(TEXTS), pa.array(["x", *TEXTS]).dictionary_encode()[1:], id="dictionary slice"),
    pytest.param(pa.array(TEXTS), pa.array(["x", *TEXTS])[1:], id="slice"),
    pytest.param(
        pa.array(TEXTS),
        pa.DictionaryArray.from_arrays(pa.array([0, 3, 1, 4], pa.uint8()), pa.array(["b", "a", "unused", None, "b"])),
        id="dictionary with repeats, null and unused texts",
    ),
    pytest.param(pa.array(TEXTS), np.array(TEXTS, object), id="objects"),
    pytest.param(pa.array(["b", "a"]), np.array(["b", "a"]), id="numpy text"),
    pytest.param(pa.array(INTEGERS), np.array(INTEGERS, np.int8), id="numpy int8"),
    pytest.param(pa.array([1, 2]), np.array([1, 2], np.uint64), id="numpy uint64"),
    pytest.param(pa.array(INTEGERS), np.array(INTEGERS, ">i8"), id="big-endian integers"),
    pytest.param(pa.array([1.5, None]), np.array([1.5, np.nan], ">f4"), id="big-endian floats"),
    pytest.param(pa.array(["b", "a"]), np.array(["b", "a"], ">U1"), id="big-endian text"),
    pytest.param(pa.array(INTEGERS), pa.array([9, *INTEGERS], pa.int32())[1:], id="int32 slice"),
    pytest.param(pa.array([1.5, None]), np.array([1.5, np.nan]), id="NaN"),
    pytest.param(pa.array([1.5, None]), np.array([1.5, np.nan], np.float16), id="float16"),
    pytest.param(pa.array([1.5, None]), pa.array([Decimal("1.50"), None]), id="decimal"),
    pytest.param(pa.array([0.0]), np.array([-0.0]), id="negative zero"),
    pytest.param(pa.array([True, False]), np.array([True, False]), id="numpy bool"),
    pytest.param(pa.array([False, True])[1:], np.array([True]), id="bool slice"),
]


@pytest.mark.parametrize("chunks", [[["b"], [None, "a"]], [[1, None], [3]], [[1.5], [], [2.5]], [[True], [None]]])
def test_values_may_come_in_chunks(chunks: list[list[Any]]):
    """As the columns of a table do, and many texts of a numpy array."""
    column = attribute_column("x", pa.chunked_array(chunks))
    assert attribute_values(column, np.arange(len(column))) == [value for chunk in chunks for value in chunk]


@pytest.mark.parametrize(("one", "other"), SAME_COLUMN)
def test_equal_values_are_equal_columns(one: Any, other: Any):
    assert_same(attribute_column("x", one), attribute_column("x", other))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Amsterdam"])
def test_times_are_seconds_since_1970_rounded_down(unit: str, zone: str | None):
    times = pa.array([-1, 0, 1_700_000_000, None], pa.timestamp("s")).cast(pa.timestamp(unit, zone))
    assert all_values(attribute_column("x", times)) == [-1, 0, 1_700_000_000, None]
    half_a_second_before = pa.array([-500], pa.timestamp("ms", zone))
    assert all_values(attribute_column("x", half_a_second_before)) == [-1]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_dates_are_their_first_second(kind: pa.DataType):
    dates = pa.array([datetime.date(1969, 12, 31), datetime.date(1970, 1, 2), None], kind)
    assert all_values(attribute_column("x", dates)) == [-86_400, 86_400, None]


def test_the_vocabulary_ascends_by_utf8_bytes():
    column = attribute_column("x", written(AttributeKind.TEXT, ["\U0001f600", "\uffff", "z", None, "é"]))
    assert column.vocabulary.to_pylist() == ["z", "é", "\uffff", "\U0001f600"]
    assert column.values.tolist() == [3, 2, 0, 0, 1]


def test_texts_that_all_items_lack_need_no_vocabulary():
    column = attribute_column("x", written(AttributeKind.TEXT, [None, None]))
    column.check("x", 2)
    assert column.arrays().keys() == {"values", "missing"}
    assert all_values(column) == [None, None]


NOT_UTF8 = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param(np.array([1.0, np.inf]), "row 1 has inf; give finite numbers, or no value", id="infinity"),
        pytest.param(pa.array(["a", None, ""]), "row 2 has ''; give 1 to 256 bytes of UTF-8, or no value", id="empty"),
        pytest.param(pa.array(["é" * 129]), "row 0 has 258 bytes; give 1 to 256", id="long"),
        pytest.param(NOT_UTF8, "row 1 has '��'; give 1 to 256 bytes of UTF-8", id="not UTF-8"),
        pytest.param(pa.array([0, 2**63], pa.uint64()), "row 1 has 9223372036854775808; .*below 2", id="uint64"),
        pytest.param(pa.array([[1]]), "values of list<item: int64>; give text, integers", id="lists"),
        pytest.param(pa.array([b"x"]), "values of binary; give text", id="bytes"),
        pytest.param(pa.array([None]), "values of null; give text", id="nothing but null"),
        pytest.param(pa.array([1, 2]).dictionary_encode(), "values of dictionary<values=int64", id="dictionary"),
        pytest.param(pa.array([1], pa.duration("s")), r"values of duration\[s\]", id="durations"),
        pytest.param(np.array(["a", 1], object), "give one value of one type for each row", id="mixed"),
        pytest.param(np.zeros((2, 2)), "give one value of one type for each row", id="matrix"),
    ],
)
def test_values_that_no_item_may_have(values: Any, message: str):
    with pytest.raises(CatalogError, match=rf"^attribute price: .*{message}"):
        attribute_column("price", values)


@pytest.mark.parametrize("name", ["", "Price", "1st", "a.b", "a b", "_x", "x" * 64, "é", "a\n"], ids=ascii)
def test_names_that_no_attribute_may_have(name: str):
    with pytest.raises(CatalogError, match=r"^attribute .*: no name; give 1 to 63 of a-z, 0-9 and _"):
        attribute_column(name, np.array([1]))


@pytest.mark.parametrize("position", [-1, 2])
def test_positions_that_are_none(position: int):
    with pytest.raises(CatalogError, match=f"positions: {position} is not one of 0 to 1"):
        attribute_values(attribute_column("x", np.array([1, 2])), [position])


def strings(offsets: list[int], utf8: bytes) -> pa.LargeStringArray:
    offsets_buffer = pa.py_buffer(np.array(offsets, np.int64))
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, offsets_buffer, pa.py_buffer(utf8))


def text(codes: list[int], vocabulary: Any, missing: list[bool] | None = None) -> AttributeColumn:
    mask = None if missing is None else np.array(missing)
    return AttributeColumn(AttributeKind.TEXT, np.array(codes, np.int32), mask, vocabulary)


def plain(kind: AttributeKind, values: list, dtype: type, missing: Any = None) -> AttributeColumn:
    return AttributeColumn(kind, np.array(values, dtype), missing)


AB = strings([0, 1, 2], b"ab")
INTEGER, NUMBER, BOOLEAN = AttributeKind.INTEGER, AttributeKind.NUMBER, AttributeKind.BOOLEAN
BROKEN: list[tuple[str, Callable[[], AttributeColumn]]] = [
    (r"int64 of shape \[1\] for 2 items", lambda: plain(INTEGER, [1], np.int64)),
    (r"int32 of shape \[2\] for 2 items", lambda: plain(INTEGER, [1, 2], np.int32)),
    ("a value is neither 0 nor 1", lambda: AttributeColumn(BOOLEAN, np.array([1, 2], np.uint8).view(np.bool_))),
    (r"missing: bool of shape \[1\]", lambda: plain(INTEGER, [0, 0], np.int64, np.array([True]))),
    ("missing: a value is neither", lambda: plain(INTEGER, [0, 0], np.int64, np.array([1, 2], np.uint8).view(bool))),
    ("missing: no value is", lambda: plain(INTEGER, [0, 0], np.int64, np.zeros(2, bool))),
    ("a missing value is not 0", lambda: plain(INTEGER, [0, 7], np.int64, np.array([False, True]))),
    ("a value is not finite", lambda: plain(NUMBER, [0, np.nan], np.float64)),
    ("a value is not finite", lambda: plain(NUMBER, [0, -np.inf], np.float64)),
    ("a value is -0.0", lambda: plain(NUMBER, [0, -0.0], np.float64)),
    ("a value is -0.0", lambda: plain(NUMBER, [0, -0.0], np.float64, np.array([False, True]))),
    ("text values without texts", lambda: text([0, 0], None)),
    ("integer values with texts", lambda: AttributeColumn(INTEGER, np.array([0, 0]), None, AB)),
    ("offsets of its texts do not span", lambda: text([0, 1], strings([1, 1, 2], b"ab"))),
    ("offsets of its texts do not span", lambda: text([0, 1], strings([0, 1, 2], b"abc"))),
    ("a text is not 1 to 256 bytes long", lambda: text([0, 1], strings([0, 0, 2], b"ab"))),
    ("a text is not 1 to 256 bytes long", lambda: text([0, 1], strings([0, 2, 1, 3], b"abc"))),
    ("a text is not 1 to 256 bytes long", lambda: text([0, 0], strings([0, 257], b"a" * 257))),
    ("texts: Invalid UTF8", lambda: text([0, 1], strings([0, 1, 2], b"a\xff"))),
    ("its texts are not ascending", lambda: text([0, 1], strings([0, 1, 2], b"ba"))),
    ("its texts are not ascending", lambda: text([0, 1], strings([0, 1, 2], b"aa"))),
    ("a value is not one of 2 texts", lambda: text([0, 2], AB)),
    ("a value is not one of 2 texts", lambda: text([0, -1], AB)),
    ("no item has the text 'b'", lambda: text([0, 0], AB)),
    ("no item has the text 'a'", lambda: text([0, 1], AB, [True, False])),
    ("a value is not one of 0 texts", lambda: text([0, 0], strings([0], b""))),
]


@pytest.mark.parametrize(("message", "make"), BROKEN, ids=[f"{at} {message}" for at, (message, _) in enumerate(BROKEN)])
def test_broken_columns_are_found(message: str, make: Callable[[], AttributeColumn]):
    with pytest.raises(CatalogError, match=rf"attribute stock: .*{message}.*; rebuild the catalogue"):
        make().check("stock", 2)


def test_texts_outside_their_bytes_are_refused_before_they_are_read():
    arrays = text([0, 1], AB).arrays() | {"vocabulary_offsets": np.array([0, 1, 9])}
    with pytest.raises(CatalogError, match=r"attribute stock: texts: .*larger than .*; rebuild the catalogue"):
        AttributeColumn.from_arrays("stock", AttributeKind.TEXT, arrays)
