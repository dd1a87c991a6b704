"""Every malformed source gets one error that names the file, and the row and field where there is one."""

import json
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from item_catalog.errors import CatalogError
from item_catalog.sources.files import read_source
from tests.item_catalog.source_files import csv, jsonl, write


class Bad(NamedTuple):
    name: str
    content: str | bytes | pa.Table
    message: str


JSON = [
    Bad("cut", "{", "malformed .json"),
    Bad("not UTF-8", b"\xff{}", "malformed .json"),
    Bad("too deep", "[" * 200_000, "malformed .json"),
    Bad("list", "[1]", "a JSON list; give one object"),
    Bad("empty", "{}", "no rows"),
    Bad("null sid", '{"a": ["<a_1>"], "b": null}', "row 1: sid is null"),
    Bad("null token", '{"a": ["<a_1>"], "b": [null]}', r"row 1 \(item 'b'\): sid\[0\] is null"),
    Bad("no codes", '{"a": ["<a_1>"], "b": []}', r"row 1 \(item 'b'\): sid has 0 codes, row 0 has 1"),
    Bad("no codes anywhere", '{"a": [], "b": []}', r"row 0 \(item 'a'\): sid has 0 codes"),
    Bad("ragged", '{"a": [1, 2], "b": [1]}', r"row 1 \(item 'b'\): sid has 1 codes, row 0 has 2"),
    Bad("codes and tokens", '{"a": [1], "b": ["<a_1>"]}', r'row 1: sid is \["<a_1>"\], of another kind than \[1\]'),
    Bad("number for a list", '{"a": [1], "b": 7}', "row 1: sid is 7, of another kind"),
    Bad("numbers for lists", '{"a": 1, "b": 7}', "sid is a column of int64; give lists of codes, or text"),
    Bad("fraction", '{"a": [1], "b": [1.5]}', r"row 1 \(item 'b'\): sid\[0\] is 1.5"),
    Bad("huge", '{"a": [1], "b": [99999999999999999999]}', "row 1: sid is .*below 2"),
    Bad("text after null", '{"a": null, "b": "x", "c": [1]}', r"row 2: sid is \[1\], of another kind than null"),
    Bad("object", '{"a": {"x": 1}}', "row 0: sid is .* of another kind"),
    Bad("prefix", '{"a": ["<a_1>"], "b": ["<b_1>"]}', r"\(item 'b'\): sid\[0\] is '<b_1>', but row 0 has '<a_1>'"),
    Bad("suffix", '{"a": ["<a_1>"], "b": ["<a_1|"]}', r"sid\[0\] is '<a_1|', but row 0 has '<a_1>'"),
    Bad("bare among tokens", '{"a": ["<a_1>"], "b": ["1"]}', r"sid\[0\] is '1', but row 0 has '<a_1>'"),
]

JSONL = [
    Bad("empty", "", "no rows"),
    Bad("cut", '{"item_id": 1, "sid": [1]}\n{"item_id": 2,\n', "row 1: malformed JSON"),
    Bad("blank line", '{"item_id": 1, "sid": [1]}\n\n', "row 1: malformed JSON"),
    Bad("list", "[1]\n", "row 0: a JSON list"),
    Bad("not UTF-8", b'{"item_id": "\xff", "sid": [1]}\n', "malformed .jsonl: .*utf-8"),
    Bad("missing", '{"item_id": 1, "sid": [1]}\n{"item_id": 2}\n', "row 1: has item_id, row 0 has item_id, sid"),
    Bad("no id", jsonl(sid=[[1]]), "0 columns named 'item_id'"),
    Bad("null id", jsonl(item_id=[None], sid=[[1]]), "row 0: item_id is null"),
    Bad("mixed ids", jsonl(item_id=[1, "x"], sid=[[1], [1]]), 'row 1: item_id is "x", of another kind than 1'),
    Bad("float id", jsonl(item_id=[1.5], sid=[[1]]), "item_id is a column of double"),
    Bad("bool id", jsonl(item_id=[True], sid=[[1]]), "item_id is a column of bool"),
]

CSV = [
    Bad("empty", "", "malformed .csv: Empty CSV"),
    Bad("header only", csv("item_id,sid_0"), "no rows"),
    Bad("short line", csv("item_id,sid_0", "1,2", "3"), "malformed .csv: .*Expected 2 columns, got 1"),
    Bad("not UTF-8", b"item_id,sid_0\n\xff,2\n", "malformed .csv: .*UTF8"),
    Bad("no id", csv("item,sid_0", "1,2"), "0 columns named 'item_id' among: item, sid_0"),
    Bad("no sid", csv("item_id,code", "1,2"), "0 columns named 'sid' among: item_id, code"),
    Bad("id twice", csv("item_id,item_id,sid", "1,1,2"), "2 columns named 'item_id'"),
    Bad("both forms", csv("item_id,sid,sid_0", "1,1,1"), "both sid and sid_0"),
    Bad("gap", csv("item_id,sid_0,sid_2", "1,1,1"), "columns sid_0, sid_2; name the 2 levels sid_0, sid_1"),
    Bad("from 1", csv("item_id,sid_1,sid_2", "1,1,1"), "name the 2 levels sid_0, sid_1"),
    Bad("empty code", csv("item_id,sid_0", "1,2", "7,"), r"row 1 \(item '7'\): sid_0 is ''"),
    Bad("empty codes", csv("item_id,sid", "1,1 2", "7,"), r"row 1 \(item '7'\): sid has \d codes"),
    Bad("word", csv("item_id,sid_0", "1,2", "7,x"), r"row 1 \(item '7'\): sid_0 is 'x'"),
]

BEYOND_INT64 = pa.array([2**63], pa.uint64())
PARQUET = [
    Bad("garbage", b"PAR1 nothing", "malformed .parquet"),
    Bad("empty", b"", "malformed .parquet"),
    Bad("no rows", pa.table({"item_id": pa.array([], pa.int64()), "sid_0": pa.array([], pa.int64())}), "no rows"),
    Bad("null id", pa.table({"item_id": [1, None], "sid_0": [1, 1]}), "row 1: item_id is null"),
    Bad("null code", pa.table({"item_id": [1, 2], "sid_0": [1, None]}), "row 1: sid_0 is null"),
    Bad("null in list", pa.table({"item_id": [1, 2], "sid": [[1], [None]]}), r"row 1 \(item 2\): sid\[0\] is null"),
    Bad("floats", pa.table({"item_id": [1], "sid_0": [1.0]}), r"row 0 \(item 1\): sid_0 is 1.0 \(double\)"),
    Bad("NaN", pa.table({"item_id": [1, 2], "sid_0": [1.0, float("nan")]}), r"row 1 \(item 2\): sid_0 is nan"),
    Bad("float ids", pa.table({"item_id": [1.0], "sid_0": [1]}), "item_id is a column of double"),
    Bad("bytes", pa.table({"item_id": [b"x"], "sid_0": [1]}), "item_id is a column of binary"),
    Bad("huge id", pa.table({"item_id": BEYOND_INT64, "sid_0": [1]}), "row 0 has id 9223372036854775808, beyond int64"),
    Bad(
        "huge code",
        pa.table({"item_id": [1], "sid_0": BEYOND_INT64}),
        r"row 0 \(item 1\): sid_0 is 9223372036854775808; codes are 0 to 65535",
    ),
    Bad("no sid", pa.table({"item_id": [1], "title": ["x"]}), "0 columns named 'sid'"),
]


@pytest.mark.parametrize(
    ("suffix", "bad"),
    [
        pytest.param(suffix, bad, id=f"{suffix}-{bad.name}")
        for suffix, cases in {".json": JSON, ".jsonl": JSONL, ".csv": CSV, ".parquet": PARQUET}.items()
        for bad in cases
    ],
)
def test_malformed_sources(suffix: str, bad: Bad, tmp_path: Path):
    source = write(tmp_path / f"source{suffix}", bad.content)
    with pytest.raises(CatalogError, match=bad.message) as caught:
        read_source(source)
    assert str(caught.value).startswith(f"{source}: ")


@pytest.mark.parametrize(
    "token", ["", "<a_>", "-3", "+3", ".5", "1.5", "1e5", "12ab", "nan", "<a_12345678901>", "1 2", "\u0663"], ids=ascii
)
def test_text_that_is_no_code(token: str, tmp_path: Path):
    source = write(tmp_path / "source.json", json.dumps({"good": ["1"], "bad": [token]}))
    with pytest.raises(CatalogError, match=r"row 1 \(item 'bad'\): sid\[0\] is .*; give a code such as 12"):
        read_source(source)


@pytest.mark.parametrize("suffix", [".txt", ".pkl", ".JSON", ""])
def test_unknown_suffixes(suffix: str, tmp_path: Path):
    source = write(tmp_path / f"source{suffix}", b"\x80\x04N.")
    with pytest.raises(CatalogError, match=f"suffix '{suffix}'; give one of .json, .jsonl, .csv, .parquet"):
        read_source(source)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_missing_files_and_directories(suffix: str, tmp_path: Path):
    with pytest.raises(CatalogError, match=rf"absent{suffix}: .*give a file that can be read"):
        read_source(tmp_path / f"absent{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(CatalogError, match=rf"folder{suffix}: .*give a file that can be read"):
        read_source(tmp_path / f"folder{suffix}")
