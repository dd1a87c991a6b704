"""JSON lines as questions: a RecallRequest in protobuf's JSON, or a row such as {"history": ["B1"], "next": ["B2"]}."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from recall_service.errors import ReplayError
from recall_service.replay.asked import Asked
from recall_service.replay.rows import COLUMNS, question_of
from recall_service.stubs.recall.v1 import recall_pb2

_NAMES = (*COLUMNS, "next")


def read_json_lines(path: Path, first_index: int, on_damage: Callable[[str], None] | None) -> Iterator[Asked]:
    """The questions of one file; empty lines are none.

    Raises ReplayError naming file, line and field, unless `on_damage` is there to be told of a line that is wrong.
    """
    index = first_index
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield _question(json.loads(line), index)
                    index += 1
                except (ValueError, ParseError) as error:
                    damage = f"{path}, line {number}: {_in_words(error)}"
                    if on_damage is None:
                        raise ReplayError(f"{damage}; correct the line, or skip damaged ones") from None
                    on_damage(damage)
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}; give a readable file") from None


def _question(document: Any, index: int) -> Asked:
    if not isinstance(document, dict):
        raise ValueError(f"{str(document)[:60]!r} is no object; give a RecallRequest, or a row with a history")
    if any(isinstance(document.get(name), dict) for name in ("history", "prompt")):
        return Asked(index=index, request=ParseDict(document, recall_pb2.RecallRequest()), arrival_seconds=0.0)
    row = dict(document)
    if "next" in row:
        row["next_items"] = row.pop("next")
    for name in row:
        if name not in _NAMES:
            raise ValueError(f"{name}: no such field; fields are {', '.join(_NAMES)}")
    if "history" not in row and "prompt" not in row:
        raise ValueError("neither history nor prompt is given; give one of them")
    return question_of(row, index)


def _in_words(error: Exception) -> str:
    return f"not JSON: {error}" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else str(error)
