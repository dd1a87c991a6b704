"""A batch of updates held against a catalogue: every problem named, every item found. Changes nothing."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.attributes import MAX_TEXT_BYTES, AttributeKind, Value
from item_catalog.catalog import Catalog
from item_catalog.id_columns import MAX_ID_BYTES, IdColumn
from item_catalog.item_ids import IntegerIds, parse_integers
from item_catalog.sid import SidLayout
from item_catalog.trie import NOT_FOUND
from item_catalog.updating.updates import InvalidUpdates, ItemUpdates, ItemUpsert, UpdateProblem

_INT64 = np.iinfo(np.int64)


class NewValues(NamedTuple):
    """What one attribute becomes. rows: int64 [n], the upserts; values: as their kind stores them, None for none."""

    rows: NDArray[np.int64]
    values: list[Value | None]


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedUpdates:
    """Upserts [n] and what is to be removed, as arrays.

    item_ids: column [n], of the catalogue's kind.
    positions: int64 [n], where the items are; NOT_FOUND for new ones.
    has_sid, sids: bool [n] and int64 [n, num_levels]; a row of sids means nothing where has_sid is false.
    values: by attribute.
    removals: int64, positions, ascending; without those that the catalogue does not know.
    unknown_removals: how many those were.
    """

    item_ids: IdColumn
    positions: NDArray[np.int64]
    has_sid: NDArray[np.bool_]
    sids: NDArray[np.int64]
    values: Mapping[str, NewValues]
    removals: NDArray[np.int64]
    unknown_removals: int


def resolve(catalog: Catalog, updates: ItemUpdates) -> ResolvedUpdates:
    """Raises InvalidUpdates with every problem of the batch; of ids alone when some are none, or stand there twice."""
    ids = [upsert.item_id for upsert in updates.upserts]
    is_integer = catalog.item_ids.KIND == IntegerIds.KIND
    numbers, are_numbers = parse_integers(ids)
    are_of_kind = are_numbers if is_integer else np.ones(len(ids), bool)
    _require_none([*_id_problems(ids, are_of_kind), *_removal_problems(updates), *_repetitions(updates)])
    positions = catalog.find(ids)
    values, value_problems = _values(catalog, updates.upserts)
    _require_none([*_sid_problems(catalog.layout, updates.upserts, positions), *value_problems])
    removals = catalog.find(updates.removals)
    is_known = removals != NOT_FOUND
    no_sid = (0,) * catalog.layout.num_levels
    return ResolvedUpdates(
        item_ids=numbers if is_integer else pa.array(ids, pa.large_string()),
        positions=positions,
        has_sid=np.array([upsert.sid is not None for upsert in updates.upserts], bool),
        sids=np.array([upsert.sid or no_sid for upsert in updates.upserts], np.int64).reshape(-1, len(no_sid)),
        values=values,
        removals=np.sort(removals[is_known]),
        unknown_removals=int((~is_known).sum()),
    )


class _Problem(NamedTuple):
    """row: of the batch, upserts first; problems are told in this order."""

    row: int
    path: str
    description: str


def _require_none(problems: list[_Problem]) -> None:
    if problems:
        problems.sort(key=lambda problem: problem.row)
        raise InvalidUpdates(tuple(UpdateProblem(problem.path, problem.description) for problem in problems))


def _id_problems(ids: list[str], are_of_kind: NDArray[np.bool_]) -> Iterator[_Problem]:
    for row, (item_id, is_of_kind) in enumerate(zip(ids, are_of_kind.tolist(), strict=True)):
        if not _is_text(item_id, MAX_ID_BYTES):
            yield _Problem(
                row, f"upserts[{row}].item_id", f"{_shown(item_id)}; give 1 to {MAX_ID_BYTES} bytes of UTF-8"
            )
        elif not is_of_kind:
            yield _Problem(
                row,
                f"upserts[{row}].item_id",
                f"{_shown(item_id)} in a catalogue of integer ids; give an int64 in decimal, or publish a catalogue of "
                "text ids",
            )


def _removal_problems(updates: ItemUpdates) -> Iterator[_Problem]:
    """An id that no item has is nothing to remove, but it must be possible to write it down."""
    for row, item_id in enumerate(updates.removals):
        if item_id and not _num_bytes(item_id):
            yield _Problem(len(updates.upserts) + row, f"removals[{row}]", f"{_shown(item_id)}; give UTF-8 text")


def _repetitions(updates: ItemUpdates) -> Iterator[_Problem]:
    seen: set[str] = set()
    of_upserts = [(f"upserts[{row}].item_id", upsert.item_id) for row, upsert in enumerate(updates.upserts)]
    of_removals = [(f"removals[{row}]", item_id) for row, item_id in enumerate(updates.removals)]
    for row, (path, item_id) in enumerate(of_upserts + of_removals):
        if item_id in seen:
            yield _Problem(row, path, f"{_shown(item_id)} stands in the batch twice; give an item once")
        seen.add(item_id)


def _sid_problems(
    layout: SidLayout, upserts: tuple[ItemUpsert, ...], positions: NDArray[np.int64]
) -> Iterator[_Problem]:
    sizes = layout.codebook_sizes
    for row, (upsert, position) in enumerate(zip(upserts, positions.tolist(), strict=True)):
        sid, path = upsert.sid, f"upserts[{row}].sid"
        if sid is None:
            if position == NOT_FOUND:
                yield _Problem(row, path, f"none, and item {_shown(upsert.item_id)} is new; give a new item a SID")
        elif len(sid) != len(sizes):
            yield _Problem(row, path, f"{len(sid)} codes; give {len(sizes)}, one for each level")
        else:
            for level, (code, size) in enumerate(zip(sid, sizes, strict=True)):
                if type(code) is not int or not 0 <= code < size:
                    yield _Problem(row, f"{path}[{level}]", f"{_shown(code)}; codes there are 0 to {size - 1}")


def _values(catalog: Catalog, upserts: tuple[ItemUpsert, ...]) -> tuple[dict[str, NewValues], list[_Problem]]:
    rows: dict[str, list[int]] = {}
    values: dict[str, list[Value | None]] = {}
    problems = []
    for row, upsert in enumerate(upserts):
        for name, given in upsert.attributes.items():
            path = f"upserts[{row}].attributes.{name}"
            if name not in catalog.attributes:
                known = ", ".join(catalog.attributes) or "none"
                problems.append(_Problem(row, path, f"the catalogue has no such attribute; it has {known}"))
                continue
            read, wanted = _READERS[catalog.attributes[name].kind]
            value = None if given is None else read(given)
            if value is None and given is not None:
                problems.append(_Problem(row, path, f"{_shown(given)}; give {wanted}"))
                continue
            rows.setdefault(name, []).append(row)
            values.setdefault(name, []).append(value)
    return {name: NewValues(np.array(rows[name], np.int64), values[name]) for name in rows}, problems


def _read_text(value: Value) -> str | None:
    return value if isinstance(value, str) and _is_text(value, MAX_TEXT_BYTES) else None


def _read_integer(value: Value) -> int | None:
    return value if type(value) is int and _INT64.min <= value <= _INT64.max else None


def _read_number(value: Value) -> float | None:
    if type(value) is not int and type(value) is not float:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number + 0.0 if math.isfinite(number) else None  # + 0.0 makes 0.0 of -0.0


def _read_boolean(value: Value) -> bool | None:
    return value if isinstance(value, bool) else None


_READERS: dict[AttributeKind, tuple[Callable[[Value], Value | None], str]] = {
    AttributeKind.TEXT: (_read_text, f"text of 1 to {MAX_TEXT_BYTES} bytes of UTF-8"),
    AttributeKind.INTEGER: (_read_integer, "an integer within int64"),
    AttributeKind.NUMBER: (_read_number, "a finite number"),
    AttributeKind.BOOLEAN: (_read_boolean, "true or false"),
}


def _is_text(text: str, max_bytes: int) -> bool:
    return 1 <= _num_bytes(text) <= max_bytes


def _num_bytes(text: str) -> int:
    """In UTF-8; 0 for what has none, a lone surrogate."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
