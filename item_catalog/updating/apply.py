"""A catalogue and a batch of updates -> the catalogue afterwards, at the cost of copying what changes.

The result is the catalogue, to the byte and the version, that would be built of the rows that are left. What does not
change is shared: the trie when no SID comes or goes, ids and offsets when no item comes, goes or moves, an attribute
that no update names. Everything else is spliced; nothing is sorted again. This module knows no files.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.id_columns import IdColumn, take
from item_catalog.item_ids import ItemIds, item_ids_from_column
from item_catalog.lockstep import lower_bounds
from item_catalog.trie import NOT_FOUND, PrefixTrie, offset_dtype
from item_catalog.updating.attribute_edits import ItemMoves, edit_column
from item_catalog.updating.resolved_updates import ResolvedUpdates, resolve
from item_catalog.updating.splice import Splice, emptied_owners, splice_offsets, splice_texts
from item_catalog.updating.trie_edits import SidPlaces, edit_trie, locate
from item_catalog.updating.updates import InvalidUpdates, ItemUpdates, UpdateProblem


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch did.

    catalog: afterwards; the very one from before when nothing of it changed.
    added, changed, removed: items that were new; that were known, whether or not anything of them changed; that went.
    unknown_removals: removals of items that the catalogue did not know.
    """

    catalog: Catalog
    added: int
    changed: int
    removed: int
    unknown_removals: int


@dataclass(frozen=True, slots=True, eq=False)
class _Arrivals:
    """Items that are new or move, [n], by SID, and on one SID by id: in the order they will stand in.

    rows: int64 [n], of the upserts.
    origins: int64 [n], old positions; NOT_FOUND for a new item.
    item_ids, sids, places: column [n]; int64 [n, num_levels]; of the SIDs.
    """

    rows: NDArray[np.int64]
    origins: NDArray[np.int64]
    item_ids: IdColumn
    sids: NDArray[np.int64]
    places: SidPlaces


def apply_updates(catalog: Catalog, updates: ItemUpdates) -> Applied:
    """Leaves `catalog` as it is, and shares with it what does not change.

    Raises InvalidUpdates with all that is wrong with the batch, naming upsert, field, value and remedy; also when no
    item would be left.
    """
    return apply_resolved(catalog, resolve(catalog, updates))


def apply_resolved(catalog: Catalog, resolved: ResolvedUpdates) -> Applied:
    """The like for what `resolve` made of a batch, for this very catalogue."""
    arrivals = _arrivals(catalog, resolved)
    departures = np.sort(np.concatenate([arrivals.origins[arrivals.origins != NOT_FOUND], resolved.removals]))
    if len(departures) - len(arrivals.rows) == catalog.num_items:
        problem = f"they are all {catalog.num_items:,} items there are; leave one, or publish another catalogue"
        raise InvalidUpdates((UpdateProblem("removals", problem),))
    num_added = int((resolved.positions == NOT_FOUND).sum())
    return Applied(
        catalog=_edited(catalog, resolved, arrivals, departures),
        added=num_added,
        changed=len(resolved.positions) - num_added,
        removed=len(resolved.removals),
        unknown_removals=resolved.unknown_removals,
    )


def _arrivals(catalog: Catalog, resolved: ResolvedUpdates) -> _Arrivals:
    places = locate(catalog.trie, resolved.sids)
    is_new = resolved.positions == NOT_FOUND
    leaves = catalog.leaves_of(np.where(is_new, 0, resolved.positions))
    stays = places.are_leaves & (places.leaves == leaves)
    rows = np.flatnonzero(is_new | (resolved.has_sid & ~stays))
    rows = rows[_by_id(take(resolved.item_ids, rows))]
    rows = rows[np.lexsort(catalog.layout.pack(resolved.sids[rows]).T[::-1])]  # stable: on one SID, by id
    return _Arrivals(
        rows, resolved.positions[rows], take(resolved.item_ids, rows), resolved.sids[rows], places.take(rows)
    )


def _edited(catalog: Catalog, resolved: ResolvedUpdates, arrivals: _Arrivals, departures: NDArray[np.int64]) -> Catalog:
    moves = ItemMoves(Splice(catalog.num_items, departures, _places_of_items(catalog, arrivals)), arrivals.origins)
    positions = resolved.positions.copy()  # of the upserts, afterwards
    stays = positions != NOT_FOUND
    positions[stays] = moves.items.numbers_of_old(positions[stays])
    positions[arrivals.rows] = moves.items.numbers_of_new()
    attributes = {}
    for name, column in catalog.attributes.items():
        rows, values = resolved.values.get(name, (arrivals.rows[:0], []))
        attributes[name] = edit_column(column, moves, positions[rows], values)

    trie, item_offsets, item_ids = catalog.trie, catalog.item_offsets, catalog.item_ids
    if not moves.items.changes_nothing:
        trie, item_offsets = _edit_leaves(catalog, arrivals, departures)
        item_ids = _edit_item_ids(catalog.item_ids, moves, arrivals.item_ids, resolved.removals)
    edited = Catalog.snapshot(trie, item_offsets, item_ids, attributes)
    return catalog if edited.version == catalog.version else edited


def _places_of_items(catalog: Catalog, arrivals: _Arrivals) -> NDArray[np.int64]:
    """In front of which old position each arrival goes: among those on its SID by id, or where its SID will be."""
    leaves, are_leaves = arrivals.places.leaves, arrivals.places.are_leaves
    firsts = catalog.item_offsets[leaves].astype(np.int64)
    ends = np.where(are_leaves, catalog.item_offsets[np.minimum(leaves + 1, catalog.trie.num_leaves)], firsts)
    column = catalog.item_ids.column
    return lower_bounds(lambda positions: take(column, positions), arrivals.item_ids, firsts, ends)


def _edit_leaves(
    catalog: Catalog, arrivals: _Arrivals, departures: NDArray[np.int64]
) -> tuple[PrefixTrie, NDArray[np.integer]]:
    """The trie and item_offsets."""
    on_old = arrivals.places.are_leaves
    losing, gaining = catalog.leaves_of(departures), arrivals.places.leaves[on_old]
    removed = emptied_owners(catalog.item_offsets, gaining, losing)

    on_new = np.flatnonzero(~on_old)
    sids = arrivals.sids[on_new]
    begins_sid = np.ones(len(sids), bool)
    np.any(sids[1:] != sids[:-1], axis=1, out=begins_sid[1:])
    firsts = np.flatnonzero(begins_sid)
    edited = edit_trie(catalog.trie, removed, sids[firsts], arrivals.places.take(on_new[firsts]))
    num_items_of_new = np.diff(np.append(firsts, len(sids)))
    item_offsets = splice_offsets(catalog.item_offsets, edited.leaves, num_items_of_new, gaining, losing)
    return edited.trie, item_offsets


def _edit_item_ids(item_ids: ItemIds, moves: ItemMoves, arriving: IdColumn, removals: NDArray[np.int64]) -> ItemIds:
    column, order = item_ids.column, item_ids.order
    edited: IdColumn
    if isinstance(column, np.ndarray):
        edited = moves.items.apply(column, arriving)
    else:
        edited = splice_texts(column, moves.items, arriving)

    # Ids keep their rank, whatever becomes of their item's position; only those that come or go change it.
    new_positions = moves.items.numbers_of_new()
    is_new = moves.origins == NOT_FOUND
    dtype = offset_dtype(max(len(order), moves.items.new_length))
    position_of = moves.items.all_numbers(dtype)
    position_of[moves.origins[~is_new]] = new_positions[~is_new]
    new_rows = np.flatnonzero(is_new)
    new_rows = new_rows[_by_id(take(arriving, new_rows))]
    ranks = Splice(
        len(order),
        np.sort(_ranks(column, order, take(column, removals))),
        _ranks(column, order, take(arriving, new_rows)),
    )
    edited_order = ranks.apply(position_of[order], new_positions[new_rows].astype(dtype))
    return item_ids_from_column(edited, edited_order.astype(offset_dtype(len(edited_order)), copy=False))


def _ranks(column: IdColumn, order: NDArray[np.integer], wanted: IdColumn) -> NDArray[np.int64]:
    """How many ids of `column`, which `order` sorts, are less than each wanted one."""
    firsts = np.zeros(len(wanted), np.int64)
    return lower_bounds(lambda ranks: take(column, order[ranks]), wanted, firsts, firsts + len(order))


def _by_id(column: IdColumn) -> NDArray[np.int64]:
    """The rows int64 [n] in ascending order of their ids; for few of them."""
    if isinstance(column, np.ndarray):
        return np.argsort(column)
    return pc.sort_indices(column).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
