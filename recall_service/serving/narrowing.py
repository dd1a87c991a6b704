"""What of a catalogue one question may be answered from: what its filter keeps, less what it excludes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.filtering.exclusions import dead_set
from item_catalog.filtering.live_sets import LiveSet
from recall_service.engine.constraint import TrieConstraint
from recall_service.serving.filter_cache import FilterCache, Narrowed
from recall_service.serving.lookup import look_up
from recall_service.serving.query import RecallQuery


@dataclass(frozen=True, slots=True, eq=False)
class Narrowing:
    """A part of a catalogue.

    constraint: what a search sees of it: the SIDs that still hold an item.
    num_left: how many items there are in it, of num_items.
    num_unknown_excluded: how many different ones of the question's exclude_item_ids the catalogue does not know.
    live: what the filter keeps; None: everything. Held here, it counts as in use until the question is answered.
    excluded: int64, the positions of the items that are excluded though the filter keeps them, ascending.
    """

    constraint: TrieConstraint
    num_left: int
    num_items: int
    num_unknown_excluded: int
    live: LiveSet | None
    excluded: NDArray[np.int64]

    @property
    def leaves_out_items(self) -> bool:
        """Whether it is less than the whole catalogue."""
        return self.num_left < self.num_items

    def keeps(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Positions of items int64 [n] -> whether each is in it, bool [n]."""
        kept = np.ones(len(positions), np.bool_) if self.live is None else self.live.items[positions]
        if len(self.excluded):
            places = np.searchsorted(self.excluded, positions)
            kept = kept & (self.excluded[np.minimum(places, len(self.excluded) - 1)] != positions)
        return kept


def is_narrowed(query: RecallQuery) -> bool:
    """Whether a question leaves anything of the catalogue out."""
    return query.filter is not None or bool(query.exclude_item_ids) or query.exclude_history


async def narrow(query: RecallQuery, catalog: Catalog, constraint: TrieConstraint, filters: FilterCache) -> Narrowing:
    """The part of a catalogue that `query` may be answered from. constraint, filters: the catalogue's own.

    Raises what `FilterCache.resolve` raises.
    """
    narrowed = None if query.filter is None else await filters.resolve(query.filter)
    excluded_ids = list(dict.fromkeys(query.exclude_item_ids))
    history = query.history or () if query.exclude_history else ()
    num_ids = len(excluded_ids) + len(history)
    return await look_up(num_ids, _without, catalog, constraint, narrowed, excluded_ids, history)


def _without(
    catalog: Catalog,
    constraint: TrieConstraint,
    narrowed: Narrowed | None,
    excluded_ids: list[str],
    history: Sequence[str],
) -> Narrowing:
    positions = catalog.find([*excluded_ids, *history])
    live = None
    num_left = catalog.num_items
    if narrowed is not None:
        constraint, live, num_left = narrowed.constraint, narrowed.live, narrowed.live.num_items
    dead = dead_set(catalog, positions[positions >= 0], live)
    return Narrowing(
        constraint=constraint.without(dead.nodes),
        num_left=num_left - len(dead.items),
        num_items=catalog.num_items,
        num_unknown_excluded=int((positions[: len(excluded_ids)] < 0).sum()),
        live=live,
        excluded=dead.items,
    )
