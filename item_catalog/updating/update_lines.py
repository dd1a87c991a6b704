"""Files of updates, one JSON object a line, read in batches of bounded size.

    {"item_id": "17", "sid": [3, 1, 2], "attributes": {"price": 9.5, "brand": null}}
    {"item_id": "18", "remove": true}

`sid` and `attributes` may be left out; null takes a value away. Lines happen in their order, and an item may stand in
several. This module knows no catalogue.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from item_catalog.errors import CatalogError
from item_catalog.updating.updates import ItemUpdates, ItemUpsert, combined

BATCH_LINES = 10_000

_MAX_LINE_BYTES = 2**20
_FIELDS = ("item_id", "sid", "attributes", "remove")


@dataclass(frozen=True, slots=True, eq=False)
class UpdateLines:
    """What some lines, one after another, do together.

    lines: by item id, the last line that names it, counted from 1.
    last_line: of the batch.
    """

    updates: ItemUpdates
    lines: dict[str, int]
    last_line: int


def read_updates(path: Path) -> Iterator[UpdateLines]:
    """Batches of at most BATCH_LINES lines. Raises CatalogError naming file, line, field, value and remedy.

    A batch ends before a line that removes an item of it, or brings back one that it removes: what is done then, and
    how it is counted, is as if each line were a batch.
    """
    batch: list[ItemUpdates] = []
    lines: dict[str, int] = {}
    removed: set[str] = set()
    last_line = 0
    for number, line in _lines(path):
        try:
            one = _update(line)
        except CatalogError as error:
            raise CatalogError(f"{path}: line {number}: {error}") from error
        item_id = one.removals[0] if one.removals else one.upserts[0].item_id
        if len(batch) == BATCH_LINES or (item_id in lines and (one.removals or item_id in removed)):
            yield UpdateLines(combined(batch, ()), lines, last_line)
            batch, lines, removed = [], {}, set()
        batch.append(one)
        lines[item_id] = last_line = number
        removed.update(one.removals)
    if batch:
        yield UpdateLines(combined(batch, ()), lines, last_line)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(_MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > _MAX_LINE_BYTES:
                    raise CatalogError(f"{path}: line {number}: longer than {_MAX_LINE_BYTES:,} bytes; write one item")
                if line.strip():
                    yield number, line
    except OSError as error:
        raise CatalogError(f"{path}: {error.strerror}; give a file that can be read") from error


def _update(line: bytes) -> ItemUpdates:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"malformed JSON: {error}; write one object a line") from error
    if not isinstance(document, dict):
        raise CatalogError(f"a JSON {type(document).__name__}; write one object a line")
    stray = sorted(document.keys() - set(_FIELDS))
    if stray:
        raise CatalogError(f"{stray[0]}: no field of an update; give {', '.join(_FIELDS)}")
    item_id = _item_id(document)
    if _field(document, "remove", bool, "true", default=False):
        if len(document) > 2:
            raise CatalogError("remove: beside sid or attributes; give one or the other")
        return ItemUpdates(removals=(item_id,))
    sid = _field(document, "sid", list, "a list of codes", default=None)
    attributes = _field(document, "attributes", dict, "an object of values by name", default={})
    return ItemUpdates((ItemUpsert(item_id, None if sid is None else tuple(sid), attributes),))


def _item_id(document: dict[str, Any]) -> str:
    item_id = document.get("item_id")
    if type(item_id) is int:
        return str(item_id)
    if not isinstance(item_id, str):
        raise CatalogError(f"item_id: {json.dumps(item_id)}; give text or an integer")
    return item_id


def _field(document: dict[str, Any], name: str, kind: type, wanted: str, default: Any) -> Any:
    value = document.get(name, default)
    if value is not default and not isinstance(value, kind):
        raise CatalogError(f"{name}: {json.dumps(value)}; give {wanted}, or leave it out")
    return value
