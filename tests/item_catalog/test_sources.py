"""Readers: every format tells the same story, and every malformed file gets one error naming file, row and field."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.errors import CatalogError
from item_catalog.sources.files import read_source
from tests.item_catalog.source_files import csv, jsonl, write

IDS = [30, 10, 20]
SIDS = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
TOKENS = [[f"<a_{a}>", f"<b_{b}>", f"<c_{c}>"] for a, b, c in SIDS]


def levels(values: list[list]) -> dict[str, list]:
    return {f"sid_{level}": [sid[level] for sid in values] for level in range(3)}


SAME_STORY = {
    "map of tokens.json": json.dumps(dict(zip(map(str, IDS), TOKENS, strict=True))),
    "map of codes.json": json.dumps(dict(zip(map(str, IDS), SIDS, strict=True))),
    "list.jsonl": jsonl(item_id=IDS, sid=SIDS),
    "text ids and tokens.jsonl": jsonl(item_id=list(map(str, IDS)), sid=TOKENS),
    "joined tokens.jsonl": jsonl(item_id=IDS, sid=["".join(sid) for sid in TOKENS], title=["a", "b", None]),
    "levels.jsonl": jsonl(item_id=IDS, **levels(SIDS)),
    "levels.csv": csv("sid_2,item_id,sid_0,sid_1", "3,30,1,2", "6,10,4,5", "9,20,7,8"),
    "tokens.csv": csv("item_id,sid_0,sid_1,sid_2", *(",".join([str(i), *t]) for i, t in zip(IDS, TOKENS, strict=True))),
    "spaces.csv": csv("title,item_id,sid", '"x, y",30,1 2 3', "z,10, 4  5 6 ", ",20,7 8 9"),
    "joined.csv": csv("item_id,sid", *(f"{i},{''.join(t)}" for i, t in zip(IDS, TOKENS, strict=True))),
    "spaced tokens.csv": csv("item_id,sid", *(f"{i},{' '.join(t)}" for i, t in zip(IDS, TOKENS, strict=True))),
    "list.parquet": pa.table({"item_id": IDS, "sid": SIDS, "price": [1.0, 2.0, None]}),
    "fixed list.parquet": pa.table({"item_id": IDS, "sid": pa.array(SIDS, pa.list_(pa.uint16(), 3))}),
    "large list of tokens.parquet": pa.table({"item_id": IDS, "sid": pa.array(TOKENS, pa.large_list(pa.string()))}),
    "levels.parquet": pa.table({"item_id": pa.array(IDS, pa.uint8()), **levels(SIDS)}),
    "text.parquet": pa.table({"item_id": list(map(str, IDS)), "sid": ["".join(sid) for sid in TOKENS]}),
    "mixed widths.parquet": pa.table({"item_id": IDS, **levels(SIDS)}).cast(
        pa.schema({"item_id": pa.int32(), "sid_0": pa.uint64(), "sid_1": pa.int8(), "sid_2": pa.int64()})
    ),
}


@pytest.mark.parametrize("name", SAME_STORY)
def test_every_format_tells_the_same_story(name: str, tmp_path: Path):
    rows = read_source(write(tmp_path / name, SAME_STORY[name]))
    assert (rows.item_ids.tolist(), rows.item_ids.dtype) == (IDS, np.int64)
    assert (rows.sids.tolist(), rows.sids.dtype) == (SIDS, np.uint16)


@pytest.mark.parametrize(
    "ids",
    [["007", "8"], ["1", "x"], ["1", "-0"], ["1", str(2**63)], ["2024-01-01", "5"]],
    ids=lambda ids: " ".join(ids),
)
@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_ids_that_are_not_all_integers_stay_text(ids: list[str], suffix: str, tmp_path: Path):
    contents = {
        ".json": json.dumps({item_id: [1] for item_id in ids}),
        ".jsonl": jsonl(item_id=ids, sid_0=[1, 1]),
        ".csv": csv("item_id,sid_0", *(f"{item_id},1" for item_id in ids)),
        ".parquet": pa.table({"item_id": ids, "sid_0": [1, 1]}),
    }
    rows = read_source(write(tmp_path / f"s{suffix}", contents[suffix]))
    catalog = build_catalog(None, rows.sids, rows.item_ids)
    assert sorted(catalog.item_ids.take([0, 1])) == sorted(ids)
    assert catalog.item_ids.KIND == "text"


def test_tokens_may_hold_other_digits_and_no_brackets(tmp_path: Path):
    source = write(tmp_path / "s.json", json.dumps({"x": ["<s0_07>", "c1"], "y": ["<s0_12>", "c0"]}))
    assert read_source(source).sids.tolist() == [[7, 1], [12, 0]]


def test_a_json_map_may_say_one_thing_twice_but_not_two(tmp_path: Path):
    """A dict would have dropped the first of the two silently."""
    rows = read_source(write(tmp_path / "s.json", '{"1": [3], "1": [4]}'))
    with pytest.raises(CatalogError, match="item 1: has two SIDs"):
        build_catalog(None, rows.sids, rows.item_ids)


def many_chunks(tmp_path: Path) -> Path:
    path = tmp_path / "chunks.parquet"
    table = pa.table({"item_id": [f"i{n}" for n in range(10)], "sid_0": list(range(10))})
    pa_parquet.write_table(table, path, row_group_size=3)
    return path


def test_parquet_of_several_row_groups(tmp_path: Path):
    rows = read_source(many_chunks(tmp_path))
    assert (rows.item_ids.to_pylist(), rows.sids[:, 0].tolist()) == ([f"i{n}" for n in range(10)], list(range(10)))


def test_nine_levels_are_not_cut_to_eight(tmp_path: Path):
    columns = {f"sid_{level}": [level] for level in range(9)}
    for name, content in [
        ("s.parquet", pa.table({"item_id": [1], **columns})),
        ("s.csv", csv(",".join(["item_id", *columns]), "1,0,1,2,3,4,5,6,7,8")),
        ("s.jsonl", jsonl(item_id=[1], **columns)),
    ]:
        assert read_source(write(tmp_path / name, content)).sids.tolist() == [list(range(9))]
