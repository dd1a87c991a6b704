"""Splices equal Python lists that lose and get entries one by one."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from item_catalog.updating.splice import Splice, emptied_owners, splice_offsets, splice_texts


class Drawn(NamedTuple):
    splice: Splice
    expected: list[tuple[str, int]]  # ("old" or "new", its number)


@st.composite
def splices(draw: st.DrawFn) -> Drawn:
    length = draw(st.integers(0, 8))
    removed = draw(st.sets(st.integers(0, length - 1))) if length else set()
    places = sorted(draw(st.lists(st.integers(0, length), max_size=6)))
    expected = []
    for old in range(length + 1):
        expected += [("new", new) for new, place in enumerate(places) if place == old]
        expected += [("old", old)] if old < length and old not in removed else []
    return Drawn(Splice(length, np.array(sorted(removed), np.int64), np.array(places, np.int64)), expected)


@given(splices())
def test_entries_and_their_numbers(drawn: Drawn):
    splice, expected = drawn
    spliced = splice.apply(np.arange(splice.length), -1 - np.arange(len(splice.places)))
    assert spliced.tolist() == [number if kind == "old" else -1 - number for kind, number in expected]
    assert splice.new_length == len(expected)
    assert [expected[number] for number in splice.numbers_of_new()] == [("new", n) for n in range(len(splice.places))]
    numbers = splice.numbers_of_old(np.arange(splice.length))
    kept = [old for old in range(splice.length) if ("old", old) in expected]
    assert [expected[number] for number in numbers[kept]] == [("old", old) for old in kept]
    np.testing.assert_array_equal(splice.all_numbers(np.dtype(np.int32)), numbers)


def test_nothing_changes_shares_the_array():
    entries, nothing = np.arange(3), np.zeros(0, np.int64)
    assert Splice(3, nothing, nothing).apply(entries, nothing) is entries


@given(splices(), st.data())
def test_texts(drawn: Drawn, data: st.DataObject):
    splice, expected = drawn
    texts = {
        "old": data.draw(st.lists(st.text("aé"), min_size=splice.length, max_size=splice.length)),
        "new": data.draw(st.lists(st.text("bß"), min_size=len(splice.places), max_size=len(splice.places))),
    }
    old, new = (pa.array(texts[kind], pa.large_string()) for kind in ("old", "new"))
    spliced = splice_texts(old, splice, new)
    spliced.validate(full=True)
    assert spliced.to_pylist() == [texts[kind][number] for kind, number in expected]


@given(splices(), st.data())
def test_offsets(drawn: Drawn, data: st.DataObject):
    splice, expected = drawn
    counts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=splice.length, max_size=splice.length)), np.int64)
    new_counts = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(splice.places), max_size=9)), np.int64)
    new_counts = new_counts[: len(splice.places)]
    owners = np.repeat(np.arange(splice.length), counts)
    losing = owners[np.array(data.draw(st.lists(st.booleans(), min_size=len(owners), max_size=len(owners))), bool)]
    kept = sorted(set(range(splice.length)) - set(splice.removed.tolist()))
    gaining = np.array(data.draw(st.lists(st.sampled_from(kept))) if kept else [], np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    changed = counts + np.bincount(gaining, minlength=splice.length) - np.bincount(losing, minlength=splice.length)
    expected_counts = [int(changed[number] if kind == "old" else new_counts[number]) for kind, number in expected]
    found = splice_offsets(offsets, splice, new_counts, gaining, losing)
    assert np.diff(found).tolist() == expected_counts
    assert (found[0], found.dtype) == (0, np.int32)
    emptied = [owner for owner in range(splice.length) if counts[owner] and not changed[owner]]
    assert emptied_owners(offsets, gaining, losing).tolist() == [one for one in emptied if one not in gaining]
