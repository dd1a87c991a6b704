"""Readers of the files that catalogues are built from. One entry point, chosen by suffix.

    .json     one object: item id -> list of codes or tokens, {"17": ["<a_1>", "<b_2>", "<c_3>"], ...}
    .jsonl    one object a line, with item_id and sid (a list or text) or sid_0, sid_1, ...
    .csv      a header, then item_id and sid (text) or sid_0, sid_1, ...
    .parquet  columns item_id and sid (lists or text) or sid_0, sid_1, ...
    directory of .parquet files, which are one table, by name in ascending order

Attributes are further fields and columns, read when they are asked for. A field that is not there, an empty cell of a
.csv and null are missing values. Other fields and columns are left alone. What columns may hold stands in source_rows.

Parquet is read in batches: beside the rows themselves no more than one is in memory. The other formats are read whole.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from item_catalog.attributes import AttributeKind, check_attribute_name
from item_catalog.errors import CatalogError
from item_catalog.sid import MAX_LEVELS
from item_catalog.sources.rows import SourceRows, is_read, rows_of_batches
from item_catalog.sources.values import typed_texts

_BATCH_ROWS = 1 << 17
_BUFFER_BYTES = 1 << 20

_Kinds = Mapping[str, AttributeKind | None]


class _Tables(NamedTuple):
    """A source as tables of rows, one after another."""

    num_rows: int
    tables: Iterable[pa.Table]

    @classmethod
    def of(cls, table: pa.Table) -> "_Tables":
        return cls(table.num_rows, [table])


def read_source(
    path: Path,
    attributes: Mapping[str, AttributeKind | None] | None = None,
    progress: Callable[[str], None] = lambda _step: None,
) -> SourceRows:
    """All rows of one file, or of one directory of .parquet files, in its order.

    attributes: the columns to read as attributes of items, and what their values are; None for a kind leaves it to the
        column. In a .csv, that is the narrowest of integer, number, boolean and text that all of its cells spell, with
            every digit of a whole number.
    progress: is told how many rows have been read.

    Raises CatalogError naming file, row and field when the file is missing, of an unknown suffix, malformed, or lacks
    what a catalogue needs.
    """
    kinds = attributes or {}
    for name in kinds:
        check_attribute_name(name)
        if is_read(name):
            raise CatalogError(f"attribute {name}: the column says which item it is, or its SID; give another one")
    reader = _read_parquet_files if path.is_dir() else _READERS.get(path.suffix)
    if reader is None:
        suffixes = ", ".join(_READERS)
        raise CatalogError(f"{path}: suffix {path.suffix!r}; give one of {suffixes}, or a directory of .parquet")
    try:
        num_rows, tables = reader(path, kinds)
        return rows_of_batches(num_rows, tables, kinds, progress)
    except CatalogError as error:
        raise CatalogError(f"{path}: {error}") from error
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}; give a file that can be read") from error
    except MemoryError as error:
        raise CatalogError(f"{path}: its rows do not fit into memory; give a smaller file") from error
    except (pa.ArrowException, ValueError, RecursionError) as error:
        raise CatalogError(f"{path}: malformed {path.suffix}: {error}; write it again") from error


def _read_json(path: Path, _kinds: _Kinds) -> _Tables:
    # Pairs and not a dict: a dict would silently keep the last of two entries with one id.
    document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=tuple)
    if not isinstance(document, tuple):
        raise CatalogError(f"a JSON {type(document).__name__}; give one object, item id -> list of codes")
    return _table({"item_id": [item_id for item_id, _ in document], "sid": [sid for _, sid in document]})


def _read_jsonl(path: Path, kinds: _Kinds) -> _Tables:
    with path.open(encoding="utf-8") as file:
        rows = [_json_row(number, line) for number, line in enumerate(file)]
    if not rows:
        raise CatalogError("no rows; give at least one item")
    names = sorted(filter(is_read, rows[0]))
    for number, row in enumerate(rows):
        found = sorted(filter(is_read, row))
        if found != names:
            raise CatalogError(f"row {number}: has {', '.join(found)}, row 0 has {', '.join(names)}; give all the same")
    attributes = [name for name in kinds if any(name in row for row in rows)]
    return _table({name: [row.get(name) for row in rows] for name in (*names, *attributes)})


def _json_row(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"row {number}: malformed JSON: {error}; write one object a line") from error
    if not isinstance(row, dict):
        raise CatalogError(f"row {number}: a JSON {type(row).__name__}; write one object a line")
    return row


def _read_csv(path: Path, kinds: _Kinds) -> _Tables:
    # All as text: numbers would lose the zeros of ids such as "007", and errors the value they are about.
    names = ["item_id", "sid", *(f"sid_{level}" for level in range(MAX_LEVELS)), *kinds]
    as_text = pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()))
    table = pa_csv.read_csv(path, convert_options=as_text)
    for at, name in enumerate(table.column_names):
        if name in kinds:
            cells = table.column(at).combine_chunks()
            cells = pc.if_else(pc.equal(cells, ""), None, cells)
            table = table.set_column(at, name, cells if kinds[name] else typed_texts(cells))
    return _Tables.of(table)


def _read_parquet(path: Path, kinds: _Kinds) -> _Tables:
    return _Tables(pa_parquet.read_metadata(path).num_rows, _parquet_batches(path, kinds))


def _read_parquet_files(path: Path, kinds: _Kinds) -> _Tables:
    files = sorted(path.glob("*.parquet"))
    if not files:
        raise CatalogError("a directory without .parquet files; give a file that can be read, or one that has some")
    num_rows = 0
    for file in files:
        with _naming(file):
            num_rows += pa_parquet.read_metadata(file).num_rows
    return _Tables(num_rows, _batches_of_files(files, kinds))


def _batches_of_files(files: Iterable[Path], attributes: Collection[str]) -> Iterator[pa.Table]:
    for file in files:
        with _naming(file):
            yield from _parquet_batches(file, attributes)


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise CatalogError(f"{file.name}: malformed .parquet: {error}; write it again") from error


def _parquet_batches(path: Path, attributes: Collection[str]) -> Iterator[pa.Table]:
    # Through small buffers: otherwise all that is ever read of the file stays in memory until it is closed.
    with pa_parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
        names = [name for name in file.schema_arrow.names if is_read(name) or name in attributes]
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            yield pa.Table.from_batches([batch])


def _table(columns: Mapping[str, Sequence[Any]]) -> _Tables:
    """Parsed JSON values as columns, each of the one type that all its values have."""
    return _Tables.of(pa.table({name: _json_column(name, values) for name, values in columns.items()}))


def _json_column(name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        # The first row up to which the values are no column; what follows it cannot make them one again.
        row = bisect_left(range(len(values)), True, key=lambda row: not _can_be_column(values[: row + 1]))
        raise CatalogError(
            f"row {row}: {name} is {json.dumps(values[row])}, of another kind than {json.dumps(values[0])} in row 0; "
            "give every row the same, and integers below 2**63"
        ) from None


def _can_be_column(values: Sequence[Any]) -> bool:
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError):
        return False
    return True


_READERS: dict[str, Callable[[Path, _Kinds], _Tables]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
