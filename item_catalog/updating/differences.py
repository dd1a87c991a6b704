"""What sets two catalogues apart: items that came, went, moved, or have other attributes. Knows no files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.attributes import AttributeColumn
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.id_columns import IdColumn

_ROWS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Positions are int64 and ascend.

    added: positions afterwards. removed: positions before.
    moved: positions afterwards of items with another SID; moved_levels, int64: the first level that differs.
    changed: by attribute that both have, positions afterwards of items of both with another value, or one instead of
        none, or none instead of one.
    attributes_added, attributes_removed: names; an attribute of another kind is in both.
    """

    added: NDArray[np.int64]
    removed: NDArray[np.int64]
    moved: NDArray[np.int64]
    moved_levels: NDArray[np.int64]
    changed: Mapping[str, NDArray[np.int64]]
    attributes_added: tuple[str, ...]
    attributes_removed: tuple[str, ...]


def differences(before: Catalog, after: Catalog) -> Differences:
    """Items are the same when their ids are. Raises CatalogError when the SIDs have other numbers of levels."""
    if before.layout.num_levels != after.layout.num_levels:
        raise CatalogError(
            f"SIDs of {before.layout.num_levels} levels before and {after.layout.num_levels} afterwards; "
            "compare catalogues of one number of levels"
        )
    origins = _origins(before.item_ids.column, after.item_ids.column)
    kept = np.flatnonzero(origins >= 0)
    stays = np.zeros(before.num_items, bool)
    stays[origins[kept]] = True
    levels = _first_levels(before, origins[kept], after, kept)
    is_moved = levels < after.layout.num_levels
    kinds = [{(name, column.kind) for name, column in one.attributes.items()} for one in (before, after)]
    return Differences(
        added=np.flatnonzero(origins < 0),
        removed=np.flatnonzero(~stays),
        moved=kept[is_moved],
        moved_levels=levels[is_moved],
        changed={
            name: kept[_differs(before.attributes[name], origins[kept], after.attributes[name], kept)]
            for name, _ in sorted(kinds[0] & kinds[1], key=lambda attribute: attribute[0])
        },
        attributes_added=tuple(sorted(name for name, _ in kinds[1] - kinds[0])),
        attributes_removed=tuple(sorted(name for name, _ in kinds[0] - kinds[1])),
    )


def _origins(before: IdColumn, after: IdColumn) -> NDArray[np.int64]:
    """For each item afterwards, where it was before; -1 for nowhere."""
    old, new = pa.array(before), pa.array(after)
    if old.type != new.type:  # numbers beside text: all is text outside
        old, new = old.cast(pa.large_string()), new.cast(pa.large_string())
    return pc.index_in(new, value_set=old).fill_null(-1).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _first_levels(
    before: Catalog, origins: NDArray[np.int64], after: Catalog, kept: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first level at which the SIDs of items differ, num_levels where they are equal; in pieces."""
    levels = np.empty(len(kept), np.int64)
    for start in range(0, len(kept), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        differs = before.sids_of(origins[rows]) != after.sids_of(kept[rows])
        levels[rows] = np.where(differs.any(axis=1), differs.argmax(axis=1), after.layout.num_levels)
    return levels


def _differs(
    before: AttributeColumn, origins: NDArray[np.int64], after: AttributeColumn, kept: NDArray[np.int64]
) -> NDArray[np.bool_]:
    old: NDArray[Any] = before.values[origins]
    new: NDArray[Any] = after.values[kept]
    if before.vocabulary is not None:  # in terms of the texts afterwards; -1 for one that is gone
        places = pc.index_in(before.vocabulary, value_set=after.vocabulary).fill_null(-1).to_numpy()
        old = places[old] if len(places) else old
    was_missing, is_missing = _missing(before)[origins], _missing(after)[kept]
    differs: NDArray[np.bool_] = (was_missing != is_missing) | ((old != new) & ~was_missing & ~is_missing)
    return differs


def _missing(column: AttributeColumn) -> NDArray[np.bool_]:
    return np.zeros(len(column), bool) if column.missing is None else column.missing
