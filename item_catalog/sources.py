"""Readers of the files that catalogues are built from. One entry point, chosen by suffix.

    .json     one object: item id -> list of codes or tokens, {"17": ["<a_1>", "<b_2>", "<c_3>"], ...}
    .jsonl    one object a line, with item_id and sid (a list or text) or sid_0, sid_1, ...
    .csv      a header, then item_id and sid (text) or sid_0, sid_1, ...
    .parquet  columns item_id and sid (lists or text) or sid_0, sid_1, ...

Other fields and columns are left alone. What the columns may hold stands in source_rows.
"""

import json
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from item_catalog.errors import CatalogError
from item_catalog.sid import MAX_LEVELS
from item_catalog.source_rows import SourceRows, is_read, rows_of_table


def read_source(path: Path) -> SourceRows:
    """All rows of one file, in its order.

    Raises CatalogError naming file, row and field when the file is missing, of an unknown suffix, malformed, or lacks
    what a catalogue needs.
    """
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise CatalogError(f"{path}: suffix {path.suffix!r}; give one of {', '.join(_READERS)}")
    try:
        return rows_of_table(reader(path))
    except CatalogError as error:
        raise CatalogError(f"{path}: {error}") from error
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}; give a file that can be read") from error
    except (pa.ArrowException, ValueError, RecursionError) as error:
        raise CatalogError(f"{path}: malformed {path.suffix}: {error}; write it again") from error


def _read_json(path: Path) -> pa.Table:
    # Pairs and not a dict: a dict would silently keep the last of two entries with one id.
    document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=tuple)
    if not isinstance(document, tuple):
        raise CatalogError(f"a JSON {type(document).__name__}; give one object, item id -> list of codes")
    return _table({"item_id": [item_id for item_id, _ in document], "sid": [sid for _, sid in document]})


def _read_jsonl(path: Path) -> pa.Table:
    with path.open(encoding="utf-8") as file:
        rows = [_json_row(number, line) for number, line in enumerate(file)]
    if not rows:
        raise CatalogError("no rows; give at least one item")
    names = sorted(filter(is_read, rows[0]))
    for number, row in enumerate(rows):
        found = sorted(filter(is_read, row))
        if found != names:
            raise CatalogError(f"row {number}: has {', '.join(found)}, row 0 has {', '.join(names)}; give all the same")
    return _table({name: [row[name] for row in rows] for name in names})


def _json_row(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"row {number}: malformed JSON: {error}; write one object a line") from error
    if not isinstance(row, dict):
        raise CatalogError(f"row {number}: a JSON {type(row).__name__}; write one object a line")
    return row


def _read_csv(path: Path) -> pa.Table:
    # All as text: numbers would lose the zeros of ids such as "007", and errors the value they are about.
    names = ["item_id", "sid", *(f"sid_{level}" for level in range(MAX_LEVELS))]
    as_text = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()))
    return pa_csv.read_csv(path, convert_options=as_text)


def _read_parquet(path: Path) -> pa.Table:
    with pa_parquet.ParquetFile(path) as file:
        return file.read([name for name in file.schema_arrow.names if is_read(name)])


def _table(columns: dict[str, list[Any]]) -> pa.Table:
    """Parsed JSON values as columns, each of the one type that all its values have."""
    return pa.table({name: _json_column(name, values) for name, values in columns.items()})


def _json_column(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        # The first row up to which the values are no column; what follows it cannot make them one again.
        row = bisect_left(range(len(values)), True, key=lambda row: not _can_be_column(values[: row + 1]))
        raise CatalogError(
            f"row {row}: {name} is {json.dumps(values[row])}, of another kind than {json.dumps(values[0])} in row 0; "
            "give integers below 2**63, or text, in every row"
        ) from None


def _can_be_column(values: list[Any]) -> bool:
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError):
        return False
    return True


_READERS: dict[str, Callable[[Path], pa.Table]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
