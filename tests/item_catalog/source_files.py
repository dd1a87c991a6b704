"""Small source files, written down as a test reads best."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet


def write(path: Path, content: str | bytes | pa.Table) -> Path:
    if isinstance(content, pa.Table):
        pa_parquet.write_table(content, path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def jsonl(**columns: list) -> str:
    return "".join(
        json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in zip(*columns.values(), strict=True)
    )


def csv(header: str, *lines: str) -> str:
    return "\n".join([header, *lines]) + "\n"
