"""Parquet as questions: a table with a history column, or what `recall-service log to-parquet` wrote."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recall_service.errors import ReplayError
from recall_service.replay.asked import Answered, Asked
from recall_service.replay.rows import COLUMNS, question_of

_ANSWER_COLUMNS = (
    "item_ids",
    "scores",
    "proven_count",
    "short_reason",
    "served_from",
    "bundle_version",
    "catalog_version",
)
_BATCH_ROWS = 64  # few, for a batch is made into rows at once, and a run has other things to do meanwhile


def read_parquet(path: Path, first_index: int, on_damage: Callable[[str], None] | None) -> Iterator[Asked]:
    """The questions of one file; columns that are not ours are not read.

    Raises ReplayError naming file, row or row group, and column, unless `on_damage` is there to be told of rows and
    row groups that cannot be read. A file that is no Parquet, or has no history, always raises.
    """
    file = _open(path)
    names = [name for name in COLUMNS if name in file.schema_arrow.names]
    if set(_ANSWER_COLUMNS) <= set(file.schema_arrow.names):
        names.extend(_ANSWER_COLUMNS)
    index, row = first_index, 0
    with file:
        for group in range(file.num_row_groups):
            end_of_group = row + file.metadata.row_group(group).num_rows
            try:
                for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=names):
                    for values in batch.to_pylist():
                        try:
                            yield question_of(values, index, _answer(values))
                            index += 1
                        except ValueError as error:
                            _report(f"{path}, row {row}: {error}", on_damage)
                        row += 1
            except (pa.ArrowException, OSError) as error:
                _report(f"{path}, row group {group} of rows {row} to {end_of_group - 1}: {error}", on_damage)
            row = end_of_group


def _open(path: Path) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise ReplayError(f"{path}: cannot be read as Parquet: {error}; give a Parquet file") from None
    if not {"history", "prompt"} & set(file.schema_arrow.names):
        found = ", ".join(file.schema_arrow.names[:20])
        file.close()
        raise ReplayError(f"{path}: has no column history, only {found}; give item ids as a list of strings")
    return file


def _report(damage: str, on_damage: Callable[[str], None] | None) -> None:
    if on_damage is None:
        raise ReplayError(f"{damage}; correct it, or skip what is damaged")
    on_damage(damage)


def _answer(values: Mapping[str, Any]) -> Answered | None:
    if values.get("item_ids") is None:
        return None
    return Answered(
        item_ids=tuple(values["item_ids"]),
        scores=tuple(values["scores"]),
        proven_count=values["proven_count"],
        short_reason=values["short_reason"] or "",
        served_from=values["served_from"],
        bundle_version=values["bundle_version"],
        catalog_version=values["catalog_version"],
    )
