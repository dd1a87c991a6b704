"""Files that catalogues are built from: whatever a spreadsheet, a notebook or another team wrote."""

import io
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet

from item_catalog.attributes import AttributeKind
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.sources.files import read_source
from tests.fuzz.hostile import Broken, Hostile, refused
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_values import mutate_value, spoilt_json
from tests.fuzz.odd_values import odd_text

_TOKENS = {"17": ["<a_1>", "<b_2>"], "18": ["<a_0>", "<b_3>"], "item ö": ["<a_1>", "<b_0>"]}
_CODES = {"17": [1, 2, 3], "18": [0, 3, 1], "-4": [1, 0, 65_535]}
_ROWS: tuple[list[dict[str, Any]], ...] = (
    [{"item_id": "a", "sid": [1, 2]}, {"item_id": "b", "sid": [0, 3]}, {"item_id": "c", "sid": [1, 2]}],
    [{"item_id": 5, "sid": "<a_1><b_2>"}, {"item_id": 6, "sid": "<a_0> <b_1>"}],
    [{"item_id": "007", "sid_0": 1, "sid_1": 2, "brand": None}, {"item_id": "8", "sid_0": 0, "sid_1": 7, "brand": "x"}],
)
_CSV = (
    b"item_id,sid\n007,<a_1><b_2>\n8,<a_0><b_1>\n",
    b"item_id,sid_0,sid_1,price\n17,1,2,1.5\n18,0,3,\n",
    b'item_id,sid\n"a, b","1 2 3"\nc,4 5 6\n',
)


class Target:
    """A catalogue of the rows, or one line of error."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self, generator: random.Random) -> Hostile:
        """place: the suffix of the file; before it the attribute that is read, and its kind, if there is one."""
        suffix = generator.choice((".json", ".jsonl", ".csv", ".parquet"))
        if generator.random() < 0.5:
            kind = generator.choice(("", *(kind.value for kind in AttributeKind)))
            name = "price" if suffix == ".csv" else "brand"
            return Hostile(f"{name} {kind}{suffix}", self._make(generator, suffix).data)
        return self._make(generator, suffix)

    def _make(self, generator: random.Random, suffix: str) -> Hostile:
        if suffix == ".json":
            return Hostile(suffix, spoilt_json(generator, generator.choice((_TOKENS, _CODES))))
        if suffix == ".csv":
            return Hostile(suffix, _spoilt_csv(generator))
        rows = generator.choice(_ROWS)
        if suffix == ".jsonl":
            lines = [
                spoilt_json(generator, row) if generator.random() < 0.5 else json.dumps(row).encode() for row in rows
            ]
            return Hostile(suffix, b"\n".join(lines))
        return Hostile(suffix, _spoilt_parquet(generator, rows))

    def check(self, hostile: Hostile) -> None:
        attribute, dot, suffix = hostile.place.rpartition(".")
        path = self._directory / f"items{dot}{suffix}"
        path.write_bytes(hostile.data)
        name, _, kind = attribute.partition(" ")
        kinds = {name: AttributeKind(kind) if kind else None} if name else {}
        refused((CatalogError,), partial(_read_and_build, path, kinds))

    def close(self) -> None:
        pass


def _read_and_build(path: Path, kinds: dict[str, AttributeKind | None]) -> Catalog:
    source = read_source(path, kinds)
    catalog = build_catalog(None, source.sids, source.item_ids, source.attributes)
    if not 1 <= catalog.num_items <= len(source.item_ids):
        raise Broken(f"{catalog.num_items} items of {len(source.item_ids)} rows")
    catalog.check()
    return catalog


def _spoilt_csv(generator: random.Random) -> bytes:
    text = generator.choice(_CSV)
    if generator.random() < 0.5:
        return mutate_bytes(generator, text, generator.choice(_CSV))
    cells = [line.split(b",") for line in text.split(b"\n")]
    row = generator.choice(cells)
    row[generator.randrange(len(row))] = odd_text(generator).encode(errors="surrogatepass")
    return b"\n".join(map(b",".join, cells))


def _spoilt_parquet(generator: random.Random, rows: list[dict[str, Any]]) -> bytes:
    """Any column of any type that Arrow finds for the values, or bytes that Parquet's reader has to refuse."""
    try:
        table = pa.Table.from_pylist(rows if generator.random() < 0.3 else _alike(mutate_value(generator, rows)))
        if generator.random() < 0.3:
            table = _retyped(generator, table)
        sink = io.BytesIO()
        pa_parquet.write_table(table, sink)
    except (pa.ArrowException, ValueError, OverflowError, TypeError, AttributeError):
        return mutate_bytes(generator, b"PAR1PAR1")  # nothing that Parquet can hold
    data = sink.getvalue()
    return mutate_bytes(generator, data) if generator.random() < 0.4 else data


def _alike(rows: Any) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _retyped(generator: random.Random, table: pa.Table) -> pa.Table:
    at = generator.randrange(len(table.column_names))
    types = (
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string()),
        *(pa.binary(), pa.decimal128(20, 3), pa.timestamp("us"), pa.date32(), pa.null()),
        *(pa.list_(pa.float64()), pa.list_(pa.string()), pa.list_(pa.uint64()), pa.list_(pa.list_(pa.int64()))),
        *(pa.large_list(pa.int64()), pa.list_(pa.int64(), 2), pa.dictionary(pa.int32(), pa.string())),
        *(pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.int64())]), pa.string_view(), pa.list_view(pa.int64())),
    )
    kind = generator.choice(types)
    values = pa.array(_values_of(generator, kind, len(table)), kind)
    return table.set_column(at, table.column_names[at], values)


def _values_of(generator: random.Random, kind: pa.DataType, count: int) -> list[Any]:
    """As many values as the type allows to be made of small integers; else nulls."""
    numbers: list[Any] = [generator.randrange(5) for _ in range(count)]
    candidates = (
        numbers,
        [str(number) for number in numbers],
        [[number, number] for number in numbers],
        [[str(number)] for number in numbers],
        [[[number]] for number in numbers],
        [np.float16(number) for number in numbers],
        [{"a": number} for number in numbers],
        [[("a", number)] for number in numbers],
    )
    for values in candidates:
        try:
            pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
        return values
    return [None] * count
