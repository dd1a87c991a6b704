"""Both kinds of item ids: found by text, taken as text, and refused when out of order."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn, id_column, sorting_order
from item_catalog.item_ids import IntegerIds, TextIds, item_ids_from_column
from item_catalog.trie import NOT_FOUND
from tests.item_catalog.strategies import INT64, TEXT


def of_column(column: IdColumn) -> IntegerIds | TextIds:
    return item_ids_from_column(column, sorting_order(column))


@settings(max_examples=60)
@given(st.lists(INT64, min_size=1, unique=True), st.lists(INT64))
def test_integers_are_found_by_their_decimal_text(values: list[int], others: list[int]):
    ids = of_column(id_column(np.array(values)))
    assert ids.find([str(value) for value in values]).tolist() == list(range(len(values)))
    assert ids.take(np.arange(len(values))) == [str(value) for value in values]
    expected = [values.index(other) if other in values else NOT_FOUND for other in others]
    assert ids.find([str(other) for other in others]).tolist() == expected


@settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, unique=True), st.lists(TEXT))
def test_strings_are_found(values: list[str], others: list[str]):
    ids = of_column(id_column(values))
    assert ids.find(values).tolist() == list(range(len(values)))
    assert ids.take(range(len(values))) == values
    assert ids.find(others).tolist() == [values.index(other) if other in values else NOT_FOUND for other in others]


@settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, unique=True), st.data())
def test_many_strings_are_found_as_few_are(values: list[str], data: st.DataObject):
    """Beside ids that exist: their beginnings, what begins with them, what is no text at all; more than are few."""
    near = st.sampled_from([changed for value in values for changed in (value, value[:-1], value + "a", "\ud800")])
    wanted = data.draw(st.lists(near | TEXT, min_size=81, max_size=110))
    ids = of_column(id_column(values))
    expected = [values.index(text) if text in values else NOT_FOUND for text in wanted]
    assert ids.find(wanted).tolist() == expected
    assert [int(ids.find([text])[0]) for text in wanted] == expected


@pytest.mark.parametrize(
    "text", ["007", "+7", " 7", "7.0", "-0", "", "x", "\u0667", "9223372036854775808", "9" * 30, "7\n"], ids=ascii
)
def test_an_integer_has_one_spelling(text: str):
    assert of_column(np.array([7, 0, -(2**63)])).find([text]).tolist() == [NOT_FOUND]


@pytest.mark.parametrize("text", ["", "\ud800", "a\0", "b" * 5_000], ids=ascii)
def test_unusual_text_is_merely_unknown(text: str):
    assert of_column(id_column(["a", "b"])).find([text]).tolist() == [NOT_FOUND]


@pytest.mark.parametrize("ids", [of_column(np.array([5, 6])), of_column(id_column(["e", "f"]))], ids=["int", "text"])
@pytest.mark.parametrize("position", [NOT_FOUND, 2])
def test_take_refuses_positions_that_are_none(ids: IntegerIds | TextIds, position: int):
    with pytest.raises(CatalogError, match=f"positions: {position} is not one of 0 to 1"):
        ids.take([0, position])


def test_find_of_nothing():
    assert of_column(np.array([5])).find([]).tolist() == []
    assert of_column(id_column(["e"])).find([]).tolist() == []


INTEGERS = IntegerIds(np.array([3, 9, 4]), np.array([0, 2, 1]))
TEXTS = TextIds(np.array([0, 1, 3, 4]), np.frombuffer("aéz".encode(), np.uint8)[[0, 1, 2, 3]], np.array([0, 2, 1]))
LEAVES = np.array([0, 2, 3])  # two items on the first SID, one on the second


def test_check_accepts_what_is_right():
    INTEGERS.check(LEAVES)
    TEXTS.check(LEAVES)


@pytest.mark.parametrize(
    ("ids", "changes", "message"),
    [
        pytest.param(INTEGERS, {"values": np.array([9, 3, 4])}, "on one SID are not ascending", id="leaf unsorted"),
        pytest.param(INTEGERS, {"values": np.array([3, 9, 9])}, "two items have one id", id="repeated"),
        pytest.param(INTEGERS, {"order": np.array([0, 1, 2])}, "does not sort", id="order wrong"),
        pytest.param(INTEGERS, {"order": np.array([0, 2, 3])}, "does not sort", id="order out of range"),
        pytest.param(INTEGERS, {"order": np.array([-3, 2, 1])}, "does not sort", id="order negative"),
        pytest.param(INTEGERS, {"order": np.array([0, 2, 2])}, "does not sort", id="no permutation"),
        pytest.param(TEXTS, {"order": np.array([0, 1, 2])}, "does not sort", id="text order wrong"),
        pytest.param(TEXTS, {"offsets": np.array([0, 1, 3, 5])}, "do not span", id="offsets too long"),
        pytest.param(TEXTS, {"offsets": np.array([0, 0, 3, 4])}, "1 to 256 bytes", id="empty id"),
        pytest.param(TEXTS, {"offsets": np.array([0, 3, 1, 4])}, "1 to 256 bytes", id="offsets fall"),
        pytest.param(TEXTS, {"offsets": np.array([0, 2, 3, 4])}, "UTF", id="cut inside a character"),
    ],
)
def test_check_names_what_is_broken(ids: IntegerIds | TextIds, changes: dict, message: str):
    with pytest.raises(CatalogError, match=message):
        dataclasses.replace(ids, **changes).check(LEAVES)
