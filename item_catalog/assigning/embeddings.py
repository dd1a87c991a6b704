"""Readers of item embeddings, a bounded number of rows at a time. One entry point, chosen by suffix.

    .npy      float numbers [items, dims]; the item ids stand in a file of their own, or are the row numbers
    .parquet  columns item_id and embedding (lists of floats, all of one length)

Item ids are held in memory, embeddings never are. Nothing pickled is read. This module knows no clusters.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn, id_column, repeats_previous, sorting_order, take

_CHUNK_NUMBERS = 1 << 22  # 32 MiB as float64, whatever the dims

_COLUMN = "embedding"


class Embeddings(Protocol):
    """One embedding for each item, read again on every pass.

    item_ids: as `id_column` gives them, none twice; [items].
    dims: numbers in an embedding, at least 1.
    """

    @property
    def item_ids(self) -> IdColumn: ...  # noqa: D102

    @property
    def dims(self) -> int: ...  # noqa: D102

    def chunks(self) -> Iterator[NDArray[np.float64]]:
        """All rows in order, float64 [rows, dims] at a time, finite. Raises CatalogError naming a row that is not."""
        ...


def open_embeddings(path: Path, ids_path: Path | None = None) -> Embeddings:
    """The embeddings in `path`; `ids_path` names the ids of a .npy, itself a .npy of integers or text of one id a line.

    Raises CatalogError naming the file, what is wrong and the remedy.
    """
    opener = {".npy": _open_npy, ".parquet": _open_parquet}.get(path.suffix)
    if opener is None:
        raise CatalogError(f"{path}: suffix {path.suffix!r}; give .npy or .parquet")
    try:
        return opener(path, ids_path)
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}; give a file that can be read") from error
    except (pa.ArrowException, ValueError, EOFError) as error:
        raise CatalogError(f"{path}: malformed {path.suffix}: {error}; write it again") from error


@dataclass(frozen=True, slots=True)
class _ArrayEmbeddings:
    path: Path
    item_ids: IdColumn
    rows: NDArray[np.floating]

    @property
    def dims(self) -> int:
        return int(self.rows.shape[1])

    def chunks(self) -> Iterator[NDArray[np.float64]]:
        size = _chunk_rows(self.dims)
        for start in range(0, len(self.rows), size):
            chunk = self.rows[start : start + size].astype(np.float64)
            _require_finite(chunk, start, self)
            yield chunk


@dataclass(frozen=True, slots=True)
class _ParquetEmbeddings:
    path: Path
    item_ids: IdColumn
    dims: int

    def chunks(self) -> Iterator[NDArray[np.float64]]:
        start = 0
        with pa_parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(_chunk_rows(self.dims), columns=[_COLUMN]):
                chunk = self._numbers(batch.column(0), start)
                _require_finite(chunk, start, self)
                start += len(chunk)
                yield chunk

    def _numbers(self, column: pa.Array, start: int) -> NDArray[np.float64]:
        lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
        if (lengths != self.dims).any():
            row = int(np.argmax(lengths != self.dims))
            found = "is null" if lengths[row] < 0 else f"has {lengths[row]} numbers"
            raise CatalogError(
                f"{_place(self, start + row)}: {_COLUMN} {found}, row 0 has {self.dims}; give all the same"
            )
        # A null number becomes NaN.
        numbers: NDArray[np.floating] = pc.list_flatten(column).to_numpy(zero_copy_only=False)
        return numbers.astype(np.float64).reshape(-1, self.dims)


def _open_npy(path: Path, ids_path: Path | None) -> Embeddings:
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.floating) or not rows.size:
        raise CatalogError(f"{path}: {rows.dtype} of shape {list(rows.shape)}; give floats of shape [items, dims]")
    if ids_path is None:
        return _ArrayEmbeddings(path, np.arange(len(rows)), rows)
    item_ids = _read_ids(ids_path)
    if len(item_ids) != len(rows):
        raise CatalogError(f"{ids_path}: {len(item_ids):,} ids for the {len(rows):,} rows of {path}; give one for each")
    return _ArrayEmbeddings(path, item_ids, rows)


def _open_parquet(path: Path, ids_path: Path | None) -> Embeddings:
    if ids_path is not None:
        raise CatalogError(f"--ids: {ids_path} given with {path}; a .parquet has its ids in the column item_id")
    with pa_parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        for name in ("item_id", _COLUMN):
            if names.count(name) != 1:
                raise CatalogError(
                    f"{path}: {names.count(name)} columns named {name!r} among: {', '.join(names)}; give exactly one"
                )
        kind = file.schema_arrow.field(_COLUMN).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        if not is_list or not pa.types.is_floating(kind.value_type):
            raise CatalogError(f"{path}: {_COLUMN} is a column of {kind}; give lists of floats")
        if not file.metadata.num_rows:
            raise CatalogError(f"{path}: no rows; give at least one item")
        first = next(file.iter_batches(1, columns=[_COLUMN])).column(0)[0].as_py()
        if not first:
            raise CatalogError(f"{path}: row 0: {_COLUMN} is {first}; give every row at least one number")
        item_ids = file.read(["item_id"]).column(0)
    integers = pa.types.is_integer(item_ids.type) and not item_ids.null_count
    written = item_ids.to_numpy() if integers else item_ids.cast(pa.large_string()).combine_chunks()
    return _ParquetEmbeddings(path, _unique_ids(path, written), len(first))


def _read_ids(path: Path) -> IdColumn:
    try:
        if path.suffix == ".npy":
            return _unique_ids(path, np.load(path, allow_pickle=False))
        return _unique_ids(path, pa.array(path.read_text(encoding="utf-8").splitlines(), pa.large_string()))
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror or error}; give a file that can be read") from error
    except (ValueError, EOFError) as error:
        raise CatalogError(
            f"{path}: malformed ids: {error}; give a .npy of integers, or text of one id a line"
        ) from error


def _unique_ids(path: Path, written: NDArray[np.generic] | pa.Array) -> IdColumn:
    if isinstance(written, np.ndarray) and not np.issubdtype(written.dtype, np.integer):
        raise CatalogError(f"{path}: ids of {written.dtype}; give integers, or text of one id a line")
    try:
        item_ids = id_column(written)
    except CatalogError as error:
        raise CatalogError(f"{path}: {error}") from error
    order = sorting_order(item_ids)
    repeats = repeats_previous(take(item_ids, order))
    if repeats.any():
        place = int(np.argmax(repeats))
        first, second = sorted(order[place - 1 : place + 1].tolist())
        raise CatalogError(
            f"{path}: rows {first} and {second} both have the id {_shown(item_ids, first)}; give every id once"
        )
    return item_ids


def _require_finite(
    chunk: NDArray[np.float64], start: int, embeddings: "_ArrayEmbeddings | _ParquetEmbeddings"
) -> None:
    if not np.isfinite(chunk).all():
        row, dimension = np.argwhere(~np.isfinite(chunk))[0].tolist()
        raise CatalogError(
            f"{_place(embeddings, start + row)}: {_COLUMN}[{dimension}] is {chunk[row, dimension]}; give finite numbers"
        )


def _place(embeddings: "_ArrayEmbeddings | _ParquetEmbeddings", row: int) -> str:
    return f"{embeddings.path}: row {row} (item {_shown(embeddings.item_ids, row)})"


def _shown(item_ids: IdColumn, row: int) -> str:
    return repr(item_ids[row].item() if isinstance(item_ids, np.ndarray) else item_ids[row].as_py())


def _chunk_rows(dims: int) -> int:
    return max(1, _CHUNK_NUMBERS // dims)
