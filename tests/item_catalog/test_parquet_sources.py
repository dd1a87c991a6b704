"""Parquet in batches: nothing is held twice, ids may turn to text late, and several files are one table."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from item_catalog.attributes import AttributeKind
from item_catalog.errors import CatalogError
from item_catalog.sources import files as sources
from item_catalog.sources.files import read_source
from tests.item_catalog.source_files import write


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BATCH_ROWS", 2)


@pytest.mark.parametrize("num_row_groups", [40, 4, 1])
def test_memory_beside_the_rows_is_that_of_a_batch(
    num_row_groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Neither row groups, of whatever size, nor what has been read of the file stay in memory."""
    monkeypatch.setattr(sources, "_BATCH_ROWS", 1 << 14)
    num_rows = 1_000_000
    generator = np.random.default_rng(7)
    table = pa.table(
        {
            "item_id": generator.integers(0, 2**62, num_rows),
            "sid": pa.FixedSizeListArray.from_arrays(pa.array(generator.integers(0, 256, 3 * num_rows)), 3),
            "price": generator.random(num_rows),
        }
    )
    pa_parquet.write_table(table, tmp_path / "s.parquet", row_group_size=num_rows // num_row_groups)
    del table

    before, held = pa.total_allocated_bytes(), []
    rows = read_source(
        tmp_path / "s.parquet", {"price": None}, lambda _step: held.append(pa.total_allocated_bytes() - before)
    )
    assert (len(rows.item_ids), rows.sids.shape, len(held)) == (num_rows, (num_rows, 3), 62)
    assert max(held) < (tmp_path / "s.parquet").stat().st_size / 2


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("last", ["x", "007", str(2**63), "-0"])
def test_ids_may_turn_to_text_in_a_late_batch(last: str, tmp_path: Path):
    ids = ["5", "-7", "0", str(2**63 - 1), str(-(2**63)), last]
    path = write(tmp_path / "s.parquet", pa.table({"item_id": ids, "sid_0": [1] * len(ids)}))
    assert read_source(path).item_ids.to_pylist() == ids
    whole = write(tmp_path / "t.parquet", pa.table({"item_id": ids[:-1], "sid_0": [1] * (len(ids) - 1)}))
    assert read_source(whole).item_ids.tolist() == [int(item_id) for item_id in ids[:-1]]


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item_id": [1, 2, 3, None], "sid_0": [1] * 4}, "row 3: item_id is null"),
        ({"item_id": [1, 2, 3, 4], "sid_0": [1, 1, 1, None]}, "row 3: sid_0 is null"),
        ({"item_id": list("abcd"), "sid": [[1]] * 3 + [[1, 2]]}, r"row 3 \(item 'd'\): sid has 2 codes, row 0 has 1"),
        ({"item_id": list("abcd"), "sid": ["<a_1>"] * 3 + ["<b_1>"]}, r"row 3 .*'<b_1>', but row 0 has '<a_1>'"),
        ({"item_id": list("abcd"), "sid_0": [1, 1, 1, 65_536]}, r"row 3 \(item 'd'\): sid_0 is 65536; codes are 0 to"),
        ({"item_id": list("abcd"), "sid_0": [1, 1, 1, -1]}, r"row 3 \(item 'd'\): sid_0 is -1; codes are 0 to 65535"),
        ({"item_id": list("abcd"), "sid_0": [1] * 4, "x": [1.0, 1, 1, np.inf]}, r"row 3 \(item 'd'\): x has inf"),
    ],
    ids=["id", "code", "levels", "token", "large", "negative", "value"],
)
def test_errors_count_rows_through_all_batches(columns: dict, message: str, tmp_path: Path):
    kinds = {"x": AttributeKind.NUMBER} if "x" in columns else {}
    with pytest.raises(CatalogError, match=message):
        read_source(write(tmp_path / "s.parquet", pa.table(columns)), kinds)


def test_progress_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sources, "_BATCH_ROWS", 2)
    steps: list[str] = []
    read_source(write(tmp_path / "s.parquet", pa.table({"item_id": [1, 2, 3], "sid_0": [1] * 3})), None, steps.append)
    assert steps == ["read 2 of 3 rows", "read 3 of 3 rows"]


def test_a_directory_of_files_is_one_table_in_order_of_names(tmp_path: Path):
    """As Spark writes them: in a directory with a suffix, between files of its own."""
    directory = tmp_path / "items.parquet"
    directory.mkdir()
    write(directory / "part-1.parquet", pa.table({"item_id": ["x"], "sid": ["<a_3>"], "city": ["b"]}))
    write(
        directory / "part-0.parquet", pa.table({"item_id": ["8", "9"], "sid": ["<a_1>", "<a_2>"], "city": ["a", "b"]})
    )
    write(directory / "_SUCCESS", "")
    rows = read_source(directory, {"city": None})
    assert rows.item_ids.to_pylist() == ["8", "9", "x"]
    assert rows.sids.tolist() == [[1], [2], [3]]
    assert rows.attributes["city"].to_pylist() == ["a", "b", "b"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b"PAR1 nothing", r"part-1.parquet: malformed .parquet: .*; write it again"),
        (pa.table({"item_id": [3], "sid_0": [1], "sid_1": [2]}), "columns sid_0, sid_1; name the 1 levels sid_0"),
        (pa.table({"item_id": [3], "code": [1]}), "0 columns named 'sid' among: item_id"),
        (pa.table({"item_id": [3], "sid_0": [-1]}), r"row 2 \(item 3\): sid_0 is -1"),
    ],
    ids=["garbage", "levels", "columns", "code"],
)
def test_a_directory_with_one_bad_file(second: bytes | pa.Table, message: str, tmp_path: Path):
    directory = tmp_path / "items"
    directory.mkdir()
    write(directory / "part-0.parquet", pa.table({"item_id": [1, 2], "sid_0": [1, 1]}))
    write(directory / "part-1.parquet", second)
    with pytest.raises(CatalogError, match=f"^{directory}: {message}"):
        read_source(directory)


def test_a_directory_without_files(tmp_path: Path):
    with pytest.raises(CatalogError, match=r"a directory without \.parquet files; give a file that can be read"):
        read_source(tmp_path)


def test_a_file_that_announces_other_rows_than_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "s.parquet", pa.table({"item_id": [1, 2], "sid_0": [1, 1]}))
    for announced in (1, 3):
        monkeypatch.setattr(sources.pa_parquet, "read_metadata", lambda _, rows=announced: _Announcement(rows))
        with pytest.raises(CatalogError, match=f"{announced} rows are announced, and others are there"):
            read_source(path)


def test_a_file_that_announces_more_rows_than_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "s.parquet", pa.table({"item_id": [1, 2], "sid_0": [1, 1]}))
    monkeypatch.setattr(sources.pa_parquet, "read_metadata", lambda _: _Announcement(2**56))
    with pytest.raises(CatalogError, match="its rows do not fit into memory; give a smaller file"):
        read_source(path)


class _Announcement:
    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
