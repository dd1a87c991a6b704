"""map_sorted_runs and stable_order against numpy's lexsort; a chunk of 8 rows, so that little data fills many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from item_catalog import sorting
from item_catalog.sorting import KeyColumn, SortedRun, map_sorted_runs, stable_order


@st.composite
def keys(draw: st.DrawFn, top_bits: int = 64) -> NDArray[np.uint64]:
    """Keys of 1-3 words, uint64 [1 to 60, words], the first of `top_bits`; they repeat, and crowd at both ends."""
    num_words = draw(st.integers(1, 3))
    words = [st.integers(0, 3) | st.integers(2**bits - 4, 2**bits - 1) for bits in (top_bits, 64, 64)[:num_words]]
    rows = draw(st.lists(st.tuples(*words), min_size=1, max_size=60))
    return np.array(rows, np.uint64).reshape(len(rows), num_words)


def lexsorted(column: NDArray[np.uint64]) -> list[int]:
    return np.lexsort(column.T[::-1]).tolist()


@settings(max_examples=80)
@given(keys())
def test_stable_order_equals_lexsort(column: NDArray[np.uint64]):
    assert stable_order(column).tolist() == lexsorted(column)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_CHUNK_BITS", 3)
    monkeypatch.setattr(sorting, "_RUN_BITS", 2)


@pytest.mark.usefixtures("few_rows")
def test_runs_equal_lexsort():
    @settings(max_examples=80)
    @given(keys(top_bits=5), st.integers(0, 5))
    def check(column: NDArray[np.uint64], splittable_bits: int):
        read: list[slice] = []

        def rows_of(part: slice) -> NDArray[np.uint64]:
            read.append(part)
            return column[part]

        runs = map_sorted_runs(KeyColumn(*column.shape, 5, splittable_bits, rows_of), lambda run: run)
        assert sorted(part.start for part in read) == list(range(0, len(column), 8))
        assert np.concatenate([run.rows for run in runs]).tolist() == lexsorted(column)
        assert [run.first for run in runs] == np.cumsum([0, *(len(run.rows) for run in runs[:-1])]).tolist()
        heads = []
        for run in runs:
            np.testing.assert_array_equal(run.keys, column[run.rows])
            heads.append(set((run.keys[:, 0] >> np.uint64(5 - splittable_bits)).tolist()))
        assert sum(map(len, heads)) == len(set.union(*heads)), "two runs share their splittable bits"

    check()


@pytest.mark.usefixtures("few_rows")
def test_many_rows_come_in_many_runs():
    column = np.arange(64, dtype=np.uint64)[::-1, None]
    runs = map_sorted_runs(KeyColumn(64, 1, 6, 6, lambda part: column[part]), lambda run: run)
    assert [run.rows.tolist() for run in runs[:2]] == [[63, 62], [61, 60]]
    assert len(runs) == 32


def test_an_error_in_a_thread_comes_out():
    def fail(run: SortedRun) -> None:
        raise ValueError(f"run at {run.first}")

    with pytest.raises(ValueError, match="run at 0"):
        map_sorted_runs(KeyColumn(3, 1, 2, 2, lambda part: np.array([[2], [0], [1]], np.uint64)[part]), fail)
