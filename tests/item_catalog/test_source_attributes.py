"""Attributes of sources: every format tells the same values, kinds are strict, and bad values name row and item."""

import datetime
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from item_catalog.attribute_columns import attribute_column, attribute_values
from item_catalog.attributes import AttributeKind
from item_catalog.errors import CatalogError
from item_catalog.sources.files import read_source
from tests.item_catalog.source_files import csv, jsonl, write

TEXT, INTEGER, NUMBER, BOOLEAN = AttributeKind
COLUMNS = {
    "item_id": ["a", "b", "c"],
    "sid_0": [1, 2, 3],
    "category": ["toys", None, "books"],
    "stock": [7, 0, None],
    "price": [1.5, None, -2.0],
    "is_new": [True, False, None],
}
KINDS = {"category": TEXT, "stock": INTEGER, "price": NUMBER, "is_new": BOOLEAN}
SAME_STORY = {
    "all.jsonl": jsonl(**COLUMNS),
    "some fields.jsonl": "".join(
        json.dumps({name: value for name, value in row.items() if value is not None}) + "\n"
        for row in pa.table(COLUMNS).to_pylist()
    ),
    "all.csv": csv(",".join(COLUMNS), "a,1,toys,7,1.5,true", "b,2,,0,,False", "c,3,books,,-2.0,"),
    "all.parquet": pa.table(COLUMNS),
    "dictionaries.parquet": pa.table({**COLUMNS, "category": pa.array(COLUMNS["category"]).dictionary_encode()}),
    "narrow.parquet": pa.table(
        {**COLUMNS, "stock": pa.array([7, 0, None], pa.uint8()), "price": pa.array([1.5, None, -2.0], pa.float32())}
    ),
}


def read_values(path: Path, kinds: dict[str, AttributeKind | None]) -> dict[str, tuple[AttributeKind, list]]:
    columns = {name: attribute_column(name, values) for name, values in read_source(path, kinds).attributes.items()}
    return {name: (column.kind, attribute_values(column, np.arange(len(column)))) for name, column in columns.items()}


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "inferred"])
@pytest.mark.parametrize("name", SAME_STORY)
def test_every_format_tells_the_same_values(name: str, declared: bool, tmp_path: Path):
    path = write(tmp_path / name, SAME_STORY[name])
    found = read_values(path, {name: kind if declared else None for name, kind in KINDS.items()})
    assert found == {name: (kind, COLUMNS[name]) for name, kind in KINDS.items()}


def test_columns_that_nobody_asks_for_are_left_alone(tmp_path: Path):
    for name, content in SAME_STORY.items():
        path = write(tmp_path / name, content)
        assert read_source(path).attributes == {}
        assert read_source(path, {"stock": None}).attributes.keys() == {"stock"}


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        pytest.param(["1", "-20", None], INTEGER, [1, -20, None], id="text to integer"),
        pytest.param([str(2**63 - 1), str(-(2**63))], INTEGER, [2**63 - 1, -(2**63)], id="large text to integer"),
        pytest.param(["1", "-2.5", "1e3", None], NUMBER, [1.0, -2.5, 1000.0, None], id="text to number"),
        pytest.param(["1", "0", "TRUE", "false"], BOOLEAN, [True, False, True, False], id="text to boolean"),
        pytest.param([1, 2, None], NUMBER, [1.0, 2.0, None], id="integer to number"),
        pytest.param([7, None], TEXT, ["7", None], id="integer to text"),
        pytest.param([1, 0, None], BOOLEAN, [True, False, None], id="integer to boolean"),
        pytest.param([1.0, None, float("nan"), -0.0], INTEGER, [1, None, None, 0], id="whole numbers to integer"),
        pytest.param([None, None], BOOLEAN, [None, None], id="nothing to boolean"),
        pytest.param([None, None], TEXT, [None, None], id="nothing to text"),
        pytest.param([datetime.date(1970, 1, 2), None], INTEGER, [86_400, None], id="dates"),
    ],
)
def test_a_declared_kind_converts_what_fits(values: list, kind: AttributeKind, expected: list, tmp_path: Path):
    ids = list(range(len(values)))
    path = write(tmp_path / "s.parquet", pa.table({"item_id": ids, "sid_0": ids, "x": values}))
    assert read_values(path, {"x": kind}) == {"x": (kind, expected)}


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "-2", ""], INTEGER),
        (["1", "2.0"], NUMBER),
        (["1", "1e5"], NUMBER),
        (["1", str(2**63)], NUMBER),
        (["1", str(2**63 + 1)], TEXT),
        (["1.5", str(2**53 + 1)], TEXT),
        (["1.5", "-" + "9" * 250], TEXT),
        (["1.5", str(2**53)], NUMBER),
        (["true", "FALSE", ""], BOOLEAN),
        (["true", "maybe"], TEXT),
        (["1", "007"], TEXT),
        (["1", "+2"], TEXT),
        (["1", " 2"], TEXT),
        (["1", "nan"], TEXT),
        (["1", "0x10"], TEXT),
    ],
    ids=str,
)
def test_cells_of_csv_become_the_narrowest_kind(cells: list[str], kind: AttributeKind, tmp_path: Path):
    path = write(tmp_path / "s.csv", csv("item_id,sid_0,x", *(f"{row},1,{cell}" for row, cell in enumerate(cells))))
    assert read_values(path, {"x": None})["x"][0] is kind


class Bad(NamedTuple):
    name: str
    content: str | pa.Table
    kind: AttributeKind | None
    message: str


def table(values: list | pa.Array) -> pa.Table:
    return pa.table({"item_id": ["a", "b"], "sid_0": [0, 1], "x": values})


BAD = [
    Bad("s.csv", csv("item_id,sid_0,x", "a,0,1", "b,0,1.5"), INTEGER, "x has '1.5'; give an integer such as 12"),
    Bad("s.csv", csv("item_id,sid_0,x", "a,0,1", f"b,0,{2**63}"), INTEGER, f"x has '{2**63}'; give an integer .*below"),
    Bad("s.csv", csv("item_id,sid_0,x", "a,0,1", "b,0,cheap"), NUMBER, "x has 'cheap'; give a number such as 12.5"),
    Bad("s.csv", csv("item_id,sid_0,x", "a,0,1", "b,0,1e999"), NUMBER, "x has inf; give finite numbers, or no value"),
    Bad("s.csv", csv("item_id,sid_0,x", "a,0,1", "b,0,yes"), BOOLEAN, "x has 'yes'; give true or false, or no value"),
    Bad("s.jsonl", jsonl(item_id=["a", "b"], sid_0=[0, 1], x=["t", ""]), TEXT, "x has ''; give 1 to 256 bytes"),
    Bad("s.parquet", table(["t", "é" * 129]), None, "x has 258 bytes; give 1 to 256 bytes"),
    Bad("s.parquet", table([1.0, 1.5]), INTEGER, "x has 1.5; give an integer such as 12"),
    Bad("s.parquet", table([1.0, 2.0**63]), INTEGER, r"x has 9.2\d+e\+18; give an integer such as 12"),
    Bad("s.parquet", table([1.0, float("-inf")]), INTEGER, "x has -inf; give an integer"),
    Bad("s.parquet", table([1.0, float("inf")]), NUMBER, "x has inf; give finite numbers"),
    Bad("s.parquet", table([1, 2]), BOOLEAN, "x has 2; give true or false, or no value"),
    Bad("s.parquet", table(pa.array([1, 2**63], pa.uint64())), INTEGER, f"x has {2**63}; give integers below"),
]


@pytest.mark.parametrize("bad", BAD, ids=[f"{at} {bad.message[:12]}" for at, bad in enumerate(BAD)])
def test_bad_values_name_file_row_item_and_column(bad: Bad, tmp_path: Path):
    path = write(tmp_path / bad.name, bad.content)
    with pytest.raises(CatalogError, match=rf"^{path}: row 1 \(item 'b'\): {bad.message}"):
        read_source(path, {"x": bad.kind})


@pytest.mark.parametrize(
    ("name", "content", "kinds", "message"),
    [
        ("s.json", '{"a": [1]}', {"x": NUMBER}, "0 columns named 'x' among: item_id, sid"),
        ("s.jsonl", jsonl(item_id=[1], sid_0=[1]), {"x": None}, "0 columns named 'x' among: item_id, sid_0"),
        ("s.csv", csv("item_id,sid_0,x,x", "1,1,2,3"), {"x": None}, "2 columns named 'x'"),
        ("s.csv", csv("item_id,sid_0,x", "1,1,"), {"x": None}, "x has no value in any row; say its kind, as x:number"),
        ("s.jsonl", jsonl(item_id=[1], sid_0=[1], x=[None]), {"x": None}, "x has no value in any row; say its kind"),
        ("s.jsonl", jsonl(item_id=[1, 2], sid_0=[1, 1], x=[1, "t"]), {"x": None}, 'row 1: x is "t", of another kind'),
        ("s.parquet", table([[1], [2]]), {"x": None}, "x is a column of list<.*>; give text, integers, numbers"),
        ("s.parquet", table([[1], [2]]), {"x": TEXT}, "x is a column of list<.*>; that is no text"),
        ("s.parquet", table([True, False]), {"x": INTEGER}, "x is a column of bool; that is no integer"),
        ("s.parquet", table([1.5, 2.5]), {"x": TEXT}, "x is a column of double; that is no text"),
        ("s.json", '{"a": [1]}', {"sid": None}, "attribute sid: the column says which item it is, or its SID"),
        ("s.json", '{"a": [1]}', {"X": None}, "attribute 'X': no name; give 1 to 63 of a-z"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("s.") else "",
)
def test_columns_that_are_no_attribute(name: str, content: str | pa.Table, kinds: dict, message: str, tmp_path: Path):
    with pytest.raises(CatalogError, match=message):
        read_source(write(tmp_path / name, content), kinds)


def test_text_that_parquet_holds_and_that_is_no_utf8(tmp_path: Path):
    offsets, utf8 = pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff")
    path = write(tmp_path / "s.parquet", table(pa.StringArray.from_buffers(2, offsets, utf8)))
    with pytest.raises(CatalogError, match="row 1: x is no UTF-8; write text as UTF-8"):
        read_source(path, {"x": None})


def test_values_of_several_batches_are_one_column(tmp_path: Path):
    """Texts that come up late, a missing value in one row group alone, and a row group of nothing else."""
    columns = {
        "item_id": list(range(7)),
        "sid_0": [0] * 7,
        "category": ["b", "a", "b", None, None, None, "c"],
        "stock": [1, 2, 3, 4, None, 6, 7],
    }
    path = tmp_path / "s.parquet"
    pa_parquet.write_table(pa.table(columns), path, row_group_size=3)
    found = read_values(path, {"category": TEXT, "stock": INTEGER})
    assert found == {"category": (TEXT, columns["category"]), "stock": (INTEGER, columns["stock"])}
