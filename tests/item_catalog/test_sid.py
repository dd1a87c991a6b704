"""SidLayout: what it refuses, and that packed keys sort as SIDs do."""

import numpy as np
import pytest
from hypothesis import given, settings

from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from tests.item_catalog.strategies import Rows, rows


@pytest.mark.parametrize("sizes", [(), (2,) * 9, (0,), (4, -1), (65_537,)], ids=str)
def test_refuses_impossible_layouts(sizes: tuple[int, ...]):
    with pytest.raises(CatalogError, match=r"codebook_sizes.*give 1 to"):
        SidLayout(sizes)


@settings(max_examples=50)
@given(rows())
def test_keys_sort_as_sids_do(drawn: Rows):
    keys = [tuple(key) for key in drawn.layout.pack(np.array(drawn.sids)).tolist()]
    assert sorted(range(len(keys)), key=keys.__getitem__) == sorted(range(len(keys)), key=drawn.sids.__getitem__)
    assert len(set(keys)) == len(set(drawn.sids))


@settings(max_examples=50)
@given(rows())
def test_unpacking_undoes_packing(drawn: Rows):
    keys = drawn.layout.pack(np.array(drawn.sids))
    assert drawn.layout.unpack(keys).tolist() == [list(sid) for sid in drawn.sids]
    largest = keys.max(axis=0).tolist()
    assert all(word < 2**bits <= 2**63 for word, bits in zip(largest, drawn.layout.word_bits, strict=True))


def test_three_levels_of_8192_are_one_word():
    assert SidLayout((8_192,) * 3).pack(np.array([[1, 2, 3]])).tolist() == [[(1 << 26) | (2 << 13) | 3]]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        pytest.param(np.array([[0, 0], [0, 4]]), "row 1 has code 4 at level 1; codes there are 0 to 3", id="too large"),
        pytest.param(np.array([[0, 0], [-1, 0]]), "row 1 has code -1 at level 0", id="negative"),
        pytest.param(np.array([[0], [1]]), r"shape \(2, 1\)", id="levels"),
        pytest.param(np.array([[0.0, 1.0]]), "float64", id="floats"),
        pytest.param(np.array([[True, False]]), "bool", id="bools"),
    ],
)
def test_check_names_row_value_and_remedy(codes: np.ndarray, message: str):
    with pytest.raises(CatalogError, match=message):
        SidLayout((4, 4)).check(codes)
