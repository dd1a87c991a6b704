"""Readers of embeddings: every row in order, a bounded number at a time; bad files get one clear error."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from item_catalog.assigning.embeddings import open_embeddings
from item_catalog.errors import CatalogError

ROWS = [[0.5, 1.0], [2.0, -1.0], [4.0, 8.0]]


def npy(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def parquet(path: Path, item_id: list, embedding: pa.Array) -> Path:
    pa_parquet.write_table(pa.table({"item_id": item_id, "embedding": embedding, "price": [1] * len(item_id)}), path)
    return path


@pytest.fixture(autouse=True)
def two_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("item_catalog.assigning.embeddings._CHUNK_NUMBERS", 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
def test_npy_without_ids_has_row_numbers(tmp_path: Path, dtype: str):
    embeddings = open_embeddings(npy(tmp_path / "e.npy", np.array(ROWS, dtype)))
    assert [chunk.tolist() for chunk in embeddings.chunks()] == [ROWS[:2], ROWS[2:]]
    assert (embeddings.item_ids.tolist(), embeddings.dims) == ([0, 1, 2], 2)


def test_npy_with_ids(tmp_path: Path):
    path = npy(tmp_path / "e.npy", np.array(ROWS))
    (tmp_path / "ids.txt").write_text("x\n007\ny z\n")
    assert open_embeddings(path, tmp_path / "ids.txt").item_ids.to_pylist() == ["x", "007", "y z"]
    assert open_embeddings(path, npy(tmp_path / "i.npy", np.array([7, 3, 9]))).item_ids.tolist() == [7, 3, 9]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float64()), pa.large_list(pa.float16())])
def test_parquet_streams_lists_of_one_length(tmp_path: Path, kind: pa.DataType):
    values = pa.array([np.float16(number) for row in ROWS for number in row], kind.value_type)
    column = pa.array([values[row * 2 : row * 2 + 2].to_pylist() for row in range(3)], pa.list_(pa.float64()))
    embeddings = open_embeddings(parquet(tmp_path / "e.parquet", ["a", "b", "c"], column.cast(kind)))
    for _ in range(2):
        assert [chunk.tolist() for chunk in embeddings.chunks()] == [ROWS[:2], ROWS[2:]]
    assert embeddings.item_ids.to_pylist() == ["a", "b", "c"]


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "suffix": (lambda d: d / "e.txt", "suffix '.txt'; give .npy or .parquet"),
    "missing": (lambda d: d / "e.npy", "No such file"),
    "pickled": (lambda d: npy(d / "e.npy", np.array([{}], object)), "malformed .npy"),
    "truncated": (lambda d: (d / "e.npy").write_bytes(b"\x93NUMPY") and d / "e.npy", "malformed .npy"),
    "empty": (lambda d: (d / "e.npy").write_bytes(b"") or d / "e.npy", "malformed .npy"),
    "one dimension": (lambda d: npy(d / "e.npy", np.ones(3)), r"float64 of shape \[3\]; give floats of shape"),
    "no rows": (lambda d: npy(d / "e.npy", np.ones((0, 3))), r"shape \[0, 3\]"),
    "integers": (lambda d: npy(d / "e.npy", np.ones((3, 3), int)), "int64 of shape"),
    "no parquet": (lambda d: (d / "e.parquet").write_bytes(b"PAR1") and d / "e.parquet", "malformed .parquet"),
    "text": (lambda d: parquet(d / "e.parquet", [1], pa.array(["x"])), "column of string; give lists of floats"),
    "empty list": (lambda d: parquet(d / "e.parquet", [1], pa.array([[]], pa.list_(pa.float32()))), "at least one"),
    "null id": (lambda d: parquet(d / "e.parquet", [1, None], pa.array(ROWS[:2])), "row 1 has no id"),
    "no parquet rows": (lambda d: parquet(d / "e.parquet", [], pa.array([], pa.list_(pa.float32()))), "no rows"),
    "repeated": (
        lambda d: parquet(d / "e.parquet", ["q", "p", "q"], pa.array(ROWS)),
        "rows 0 and 2 both have the id 'q'; give every id once",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_named(tmp_path: Path, make: Callable[[Path], Path], message: str):
    path = make(tmp_path)
    with pytest.raises(CatalogError, match=message) as raised:
        open_embeddings(path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([ROWS[0], ROWS[1], [1.0, None]], r"row 2 \(item 'c'\): embedding\[1\] is nan; give finite numbers"),
        ([ROWS[0], ROWS[1], [np.inf, 1.0]], r"row 2 \(item 'c'\): embedding\[0\] is inf"),
        ([ROWS[0], ROWS[1], [1.0]], r"row 2 \(item 'c'\): embedding has 1 numbers, row 0 has 2; give all the same"),
        ([ROWS[0], None, ROWS[2]], r"row 1 \(item 'b'\): embedding is null, row 0 has 2"),
    ],
    ids=["null number", "infinite", "short", "null"],
)
def test_a_bad_row_is_named(tmp_path: Path, column: list, message: str):
    path = parquet(tmp_path / "e.parquet", ["a", "b", "c"], pa.array(column))
    with pytest.raises(CatalogError, match=message):
        list(open_embeddings(path).chunks())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\n2\n", r"2 ids for the 3 rows of .*; give one for each"),
        (b"1\n2\n1\n", r"rows 0 and 2 both have the id '1'"),
        (b"1\n\n2\n", "row 1 has an id of 0 bytes"),
        (b"\xff\n1\n2\n", "malformed ids"),
    ],
    ids=["too few", "repeated", "empty line", "not UTF-8"],
)
def test_bad_ids_are_named(tmp_path: Path, content: bytes, message: str):
    ids = tmp_path / "ids.txt"
    ids.write_bytes(content)
    with pytest.raises(CatalogError, match=message) as raised:
        open_embeddings(npy(tmp_path / "e.npy", np.array(ROWS)), ids)
    assert str(raised.value).startswith(f"{ids}: ")


def test_ids_of_a_parquet_are_its_own(tmp_path: Path):
    path = parquet(tmp_path / "e.parquet", [1, 2, 3], pa.array(ROWS))
    with pytest.raises(CatalogError, match=r"a \.parquet has its ids in the column item_id"):
        open_embeddings(path, tmp_path / "ids.txt")
