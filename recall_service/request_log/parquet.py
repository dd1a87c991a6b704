"""A request log as a flat Parquet table: one row a record, for whoever asks in SQL or pandas, and for replay."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.json_format import MessageToJson

from recall_service.errors import RequestLogError
from recall_service.request_log.names import (
    CACHE_MODES,
    SCORE_SPACES,
    SEARCH_MODES,
    SERVED_FROM,
    SHORT_REASONS,
    code_name,
)
from recall_service.request_log.reader import Frame
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall

# What a row group, and so the memory, holds: whichever comes first.
GROUP_ROWS = 8_192
GROUP_BYTES = 32 * 1024**2

_STRINGS = pa.list_(pa.string())

# What was asked; what came of it; and, null unless it was answered, the answer.
SCHEMA = pa.schema(
    {
        "arrival_time": pa.timestamp("us", "UTC"),
        "request_id": pa.string(),
        "user_id": pa.string(),
        "scene": pa.string(),
        "bundle": pa.string(),
        "history": _STRINGS,
        "prompt": pa.list_(pa.uint32()),
        "num_items": pa.uint32(),
        "beam_width": pa.uint32(),
        "filter": pa.string(),  # the message as JSON
        "exclude_item_ids": _STRINGS,
        "exclude_history": pa.bool_(),
        "cache_mode": pa.string(),
        "search_mode": pa.string(),
        "include_steps": pa.bool_(),
        "deadline_seconds": pa.float64(),
        "in_batch": pa.bool_(),
        "code": pa.string(),
        "error_reason": pa.string(),
        "total_seconds": pa.float64(),
        "server_version": pa.string(),
        "item_ids": _STRINGS,
        "scores": pa.list_(pa.float64()),
        "proven_count": pa.uint32(),
        "served_from": pa.string(),
        "short_reason": pa.string(),
        "answer_bundle": pa.string(),
        "bundle_version": pa.string(),
        "catalog_version": pa.string(),
        "score_space": pa.string(),
        "used_beam_width": pa.uint32(),
        "unknown_history_items": pa.uint32(),
        "unknown_excluded_items": pa.uint32(),
        "queue_us": pa.uint64(),
        "prefill_us": pa.uint64(),
        "decode_us": pa.uint64(),
        "total_us": pa.uint64(),
    }
)


def write_parquet(frames: Iterable[Frame], path: Path) -> int:
    """Write `frames` to `path`, which appears when it is whole; how many rows it has.

    Raises RequestLogError when `path` cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        num_rows = _write(frames, unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        raise RequestLogError(f"{path}: cannot be written: {error}; give a path with room for it") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return num_rows


def _write(frames: Iterable[Frame], path: Path) -> int:
    num_rows = num_bytes = 0
    rows: list[Mapping[str, Any]] = []
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for frame in frames:
            rows.extend(map(_row, frame.records))
            num_bytes += frame.raw_bytes
            if len(rows) >= GROUP_ROWS or num_bytes >= GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                num_rows += len(rows)
                rows, num_bytes = [], 0
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return num_rows + len(rows)


def _row(record: LoggedRecall) -> dict[str, Any]:
    request = record.request
    asks_by = request.WhichOneof("context")
    row = {
        "arrival_time": record.arrival_time.ToNanoseconds() // 1_000,
        "request_id": request.request_id,
        "user_id": request.user_id,
        "scene": request.scene,
        "bundle": request.bundle,
        "history": list(request.history.item_ids) if asks_by == "history" else None,
        "prompt": list(request.prompt.token_ids) if asks_by == "prompt" else None,
        "num_items": request.num_items,
        "beam_width": request.beam_width,
        "filter": MessageToJson(request.filter, indent=None) if request.HasField("filter") else None,
        "exclude_item_ids": list(request.exclude_item_ids),
        "exclude_history": request.exclude_history,
        "cache_mode": _name(CACHE_MODES, request.cache_mode),
        "search_mode": _name(SEARCH_MODES, request.search_mode),
        "include_steps": request.include_steps,
        "deadline_seconds": record.deadline_seconds if record.HasField("deadline_seconds") else None,
        "in_batch": record.in_batch,
        "code": code_name(record.status_code),
        "error_reason": record.error_reason,
        "total_seconds": record.total_seconds,
        "server_version": record.server_version,
    }
    return row | _answer(record) if record.HasField("answer") else row


def _answer(record: LoggedRecall) -> dict[str, Any]:
    answer, timings = record.answer, record.answer.timings
    return {
        "item_ids": list(answer.item_ids),
        "scores": list(answer.scores),
        "proven_count": answer.proven_count,
        "served_from": _name(SERVED_FROM, answer.served_from),
        "short_reason": _name(SHORT_REASONS, answer.completeness.short_reason),
        "answer_bundle": answer.bundle,
        "bundle_version": answer.bundle_version,
        "catalog_version": answer.catalog_version,
        "score_space": _name(SCORE_SPACES, answer.score_space),
        "used_beam_width": answer.beam_width,
        "unknown_history_items": answer.unknown_history_items,
        "unknown_excluded_items": answer.unknown_excluded_items,
        "queue_us": timings.queue_us,
        "prefill_us": timings.prefill_us,
        "decode_us": timings.decode_us,
        "total_us": timings.total_us,
    }


def _name(names: Mapping[int, str], number: int) -> str:
    """By name; a number that a later version of the contract may mean something by, as it is."""
    return names.get(number, str(number))
