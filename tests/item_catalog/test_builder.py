"""build_catalog: order and repetition of rows mean nothing, and every bad row is named."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog import sorting
from item_catalog.attribute_columns import attribute_values
from item_catalog.building.builder import build_catalog, infer_layout
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout
from tests.item_catalog.attribute_strategies import attributes
from tests.item_catalog.strategies import Rows, rows
from tests.oracles.lexsort_catalog import lexsorted_arrays

LAYOUT = SidLayout((4, 4))


@settings(max_examples=60)
@given(rows(), st.data())
def test_permuting_and_repeating_rows_changes_nothing(drawn: Rows, data: st.DataObject):
    """P8, the catalogue's half."""
    all_rows = list(range(len(drawn.sids)))
    repeated = data.draw(st.lists(st.sampled_from(all_rows), max_size=5))
    row_order = data.draw(st.permutations(all_rows + repeated))
    once, again = drawn.build(), drawn.build(row_order)
    assert once.version == again.version
    for name, array in once.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name], err_msg=name)
    assert again.num_items == len(all_rows)


def test_what_is_sorted_in_many_runs_equals_what_is_sorted_in_one(monkeypatch: pytest.MonkeyPatch):
    @settings(max_examples=60)
    @given(rows())
    def check(drawn: Rows):
        whole = drawn.build().version
        with monkeypatch.context() as patches:
            patches.setattr(sorting, "_CHUNK_BITS", 2)
            patches.setattr(sorting, "_RUN_BITS", 0)
            assert drawn.build().version == whole

    check()


@pytest.mark.parametrize("ids_ascend", [True, False], ids=["ascending ids", "shuffled ids"])
@pytest.mark.parametrize(
    "sizes", [(8_192, 8_192, 8_192), (4, 256, 256), (256,) * 4, (16,) * 5, (65_536,) * 8, (1, 9, 1)], ids=str
)
def test_many_rows_equal_one_lexsort(sizes: tuple[int, ...], ids_ascend: bool):
    """Enough for several chunks; on the small layouts nearly every SID is shared."""
    rng = np.random.default_rng(0)
    sids = np.stack([rng.integers(0, size, 300_000, dtype=np.uint16) for size in sizes], axis=1)
    sids[: len(sids) // 2, 0] %= 3  # crowded subtrees beside sparse ones
    item_ids = np.unique(rng.integers(-(2**63), 2**63 - 1, len(sids)))
    if not ids_ascend:
        rng.shuffle(item_ids)
    built = build_catalog(SidLayout(sizes), sids, item_ids).arrays()
    expected = lexsorted_arrays(sids, item_ids)
    assert built.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(built[name], array, err_msg=name)
        assert built[name].dtype == array.dtype, name


@settings(max_examples=40)
@given(rows(), st.data())
def test_attributes_follow_their_items(drawn: Rows, data: st.DataObject):
    written = data.draw(attributes(len(drawn.sids)))
    repeated = [*range(len(drawn.sids)), *data.draw(st.lists(st.sampled_from(range(len(drawn.sids))), max_size=5))]
    row_order = data.draw(st.permutations(repeated))
    catalog = drawn.build(row_order, written)
    assert catalog.version == drawn.build(None, written).version
    assert list(catalog.attributes) == sorted(written)
    positions = catalog.find([str(item_id) for item_id in drawn.item_ids])
    for name, values in written.items():
        assert attribute_values(catalog.attributes[name], positions) == values.to_pylist(), name


def test_progress_is_told_what_begins():
    phases: list[str] = []
    build_catalog(LAYOUT, [[0, 1]], np.array([1]), progress=phases.append)
    assert phases == ["sorting SIDs", "ordering item ids", "fingerprinting"]


@settings(max_examples=30)
@given(rows())
def test_what_is_built_is_sound_and_read_only(drawn: Rows):
    catalog = drawn.build()
    catalog.check()
    for array in catalog.arrays().values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_callers_arrays_stay_the_callers():
    sids, ids = np.array([[0, 0]]), np.array([1])
    catalog = build_catalog(LAYOUT, sids, ids)
    sids[0], ids[0] = 3, 3
    assert (catalog.sids_of([0]).tolist(), catalog.item_ids.take([0])) == ([[0, 0]], ["1"])


def test_version_tells_content_apart():
    base = build_catalog(LAYOUT, [[0, 1], [2, 3]], np.array([1, 2]))
    others = [
        build_catalog(SidLayout((4, 8)), [[0, 1], [2, 3]], np.array([1, 2])),
        build_catalog(LAYOUT, [[0, 1], [2, 2]], np.array([1, 2])),
        build_catalog(LAYOUT, [[0, 1], [2, 3]], np.array([1, 3])),
        build_catalog(LAYOUT, [[2, 3], [0, 1]], np.array([1, 2])),
        build_catalog(LAYOUT, [[0, 1], [2, 3]], ["1", "2"]),
        build_catalog(LAYOUT, [[0, 1]], np.array([1])),
    ]
    assert len({base.version, *(other.version for other in others)}) == 1 + len(others)


def test_collisions_stand_in_order_of_ids():
    """Numbers by value, strings by their UTF-8 bytes (which is the order of code points, not of UTF-16)."""
    sids = np.zeros((4, 2), np.int64)
    assert build_catalog(LAYOUT, sids, np.array([10, -1, 9, 2])).item_ids.take(range(4)) == ["-1", "2", "9", "10"]
    texts = ["\U0001f600", "\uffff", "z", "é"]
    assert build_catalog(LAYOUT, sids, texts).item_ids.take(range(4)) == ["z", "é", "\uffff", "\U0001f600"]


@pytest.mark.parametrize(
    "item_ids",
    [["a", "b"], ("a", "b"), np.array(["a", "b"]), pa.array(["a", "b"]), pa.array(["x", "a", "b"])[1:]],
    ids=["list", "tuple", "numpy", "arrow", "arrow slice"],
)
def test_strings_come_in_many_shapes(item_ids):
    expected = build_catalog(LAYOUT, [[0, 1], [2, 3]], ["a", "b"])
    assert build_catalog(LAYOUT, [[0, 1], [2, 3]], item_ids).version == expected.version


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64])
def test_the_dtype_of_rows_does_not_matter(dtype: type):
    expected = build_catalog(LAYOUT, [[0, 1], [2, 3]], np.array([1, 2]))
    assert build_catalog(LAYOUT, np.array([[0, 1], [2, 3]], dtype), np.array([1, 2], dtype)).version == expected.version


def test_inferred_codebooks_are_powers_of_two():
    sids = np.array([[0, 1, 255, 256], [0, 0, 3, 65_535]])
    assert infer_layout(sids).codebook_sizes == (1, 2, 256, 65_536)
    assert build_catalog(None, sids, np.array([1, 2])).layout == infer_layout(sids)


ONE = np.array([1])
TWO = np.array([1, 2])


NOT_UTF8 = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"a\xff\xfe"))


@pytest.mark.parametrize(
    ("sids", "item_ids", "message"),
    [
        pytest.param([], [], "items: there are none", id="empty"),
        pytest.param(np.empty((0, 2), int), np.empty(0, int), "items: there are none", id="empty arrays"),
        pytest.param([[0, 0]], TWO, "item_ids: 2 ids for 1 SIDs", id="lengths"),
        pytest.param([[0, 0], [1]], TWO, r"row 1 is \[1\], row 0 is \[0, 0\]; give every row", id="ragged"),
        pytest.param([[0], [1]], TWO, r"shape \(2, 1\); .* \[items, 2\]", id="levels"),
        pytest.param([[0, 0], [0, 4]], TWO, "row 1 has code 4 at level 1; codes there are 0 to 3", id="too large"),
        pytest.param([[0, 0], [-1, 0]], TWO, "row 1 has code -1 at level 0", id="negative"),
        pytest.param([[0, 0], [0.5, 0]], TWO, r"row 1 is \[0.5, 0\].*one integer for each level", id="fraction"),
        pytest.param([[0, 0], [2**70, 0]], TWO, r"row 1 is \[1180591620717411303424, 0\]", id="huge"),
        pytest.param(np.array([[0.0, 1.0]]), ONE, "row 0 is .*one integer for each level", id="floats"),
        pytest.param([[0, 0], ["1", 0]], TWO, "row 1 is .*one integer for each level", id="text code"),
        pytest.param([[0, 0], [True, 0.0]], TWO, r"row 1 is \[True, 0.0\]", id="bool"),
        pytest.param([[0, 0], [0, [1]]], TWO, r"row 1 is \[0, \[1\]\]", id="nested"),
        pytest.param([[0, 0], [None, 0]], TWO, "row 1 is .*one integer for each level", id="no code"),
        pytest.param([[0, 0], [0, 0]], ["a", ""], "row 1 has an id of 0 bytes", id="empty id"),
        pytest.param([[0, 0], [0, 0]], ["a", "é" * 129], "row 1 has an id of 258 bytes; give 1 to 256", id="long id"),
        pytest.param([[0, 0], [0, 0]], ["a", None], "row 1 has no id", id="no id"),
        pytest.param([[0, 0], [0, 0]], ["a", 7], "row 1 has 7; give strings", id="mixed ids"),
        pytest.param([[0, 0], [0, 0]], [None, 7], "row 1 has 7; give strings", id="no id and mixed ids"),
        pytest.param(
            [[0, 0], [0, 0]], ["a", "\ud800"], r"row 1 has '\\ud800'; give strings of Unicode", id="surrogate"
        ),
        pytest.param([[0, 0], [0, 0]], NOT_UTF8, r"row 1 has '��', which is no UTF-8; give UTF-8 text", id="no UTF-8"),
        pytest.param([[0, 0]], np.array([1.5]), "row 0 has .*1.5.*; give strings", id="float ids"),
        pytest.param([[0, 0]], pa.array([1]), "Arrow array of int64", id="arrow integers"),
        pytest.param([[0, 0]], np.array([[1]]), r"shape \(1, 1\); give one id per row", id="ids 2-d"),
        pytest.param(
            [[0, 0]], np.array([2**63], np.uint64), "row 0 has id 9223372036854775808, beyond int64", id="uint64"
        ),
        pytest.param([[0, 0], [0, 1]], np.array([7, 7]), r"item 7: has two SIDs, \[0, 0\] and \[0, 1\]", id="two SIDs"),
        pytest.param([[3, 0], [0, 1]], ["x", "x"], r"item x: has two SIDs, \[0, 1\] and \[3, 0\]", id="two SIDs, text"),
    ],
)
def test_bad_rows_are_named(sids, item_ids, message: str):
    with pytest.raises(CatalogError, match=message):
        build_catalog(LAYOUT, sids, item_ids)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param([1, 1, 2], r"item 7: rows 1 and 2 differ in attribute stock; give each item one row", id="value"),
        pytest.param([1, 0, None], r"item 7: rows 1 and 2 differ in attribute stock", id="missing"),
        pytest.param([1, 2], "attribute stock: 2 values for 3 rows; give one for each row", id="lengths"),
    ],
)
def test_bad_attributes_are_named(values: list, message: str):
    with pytest.raises(CatalogError, match=message):
        build_catalog(LAYOUT, [[0, 1], [2, 3], [2, 3]], np.array([8, 7, 7]), {"stock": pa.array(values)})


@pytest.mark.parametrize(
    ("sids", "message"),
    [
        pytest.param([[0, 65_536]], "row 0 has code 65536 at level 1; codes there are 0 to 65535", id="too large"),
        pytest.param([[-1, 0]], "row 0 has code -1 at level 0", id="negative"),
        pytest.param([[0] * 9], "9 levels; give 1 to 8", id="too many levels"),
        pytest.param([[]], "0 levels", id="no levels"),
        pytest.param([1], r"shape \(1,\)", id="not a table"),
    ],
)
def test_layouts_that_cannot_be_inferred(sids: list, message: str):
    with pytest.raises(CatalogError, match=message):
        build_catalog(None, sids, ONE)
