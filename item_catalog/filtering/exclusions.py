"""What dies when certain items are left out, at a cost that grows with these items and not with the catalogue.

A leaf dies when all its items are left out, an inner node when all its leaves are dead. Under a filter, what does not
pass it does not count.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.filtering.live_sets import LiveSet
from item_catalog.indices import checked_indices
from item_catalog.lockstep import owners_of


@dataclass(frozen=True, slots=True, eq=False)
class DeadSet:
    """What is left out, and what dies of it; only what was live before.

    items: int64 [n], positions, ascending, each once.
    nodes: entry d: int64 [n], the nodes at depth d + 1 that no live leaf is left below, or leaves that died; ascending.
    """

    items: NDArray[np.int64]
    nodes: tuple[NDArray[np.int64], ...]


def dead_set(catalog: Catalog, positions: NDArray[np.integer], live: LiveSet | None = None) -> DeadSet:
    """Leave out the items at positions int [n], in any order and any number of times; live: the filter's, if any.

    Raises CatalogError for a position that is none.
    """
    items = np.unique(checked_indices("positions", positions, catalog.num_items))
    if live is not None:
        items = items[live.items[items]]
    dead, levels = items, []
    all_offsets = (*catalog.trie.offsets, catalog.item_offsets)
    for depth in reversed(range(1, len(all_offsets))):
        dead = _dead_parents(all_offsets[depth], dead, depth, live)
        levels.append(dead)
    return DeadSet(items, tuple(reversed(levels)))


def _dead_parents(
    offsets: NDArray[np.integer], dead: NDArray[np.int64], depth: int, live: LiveSet | None
) -> NDArray[np.int64]:
    """The nodes at `depth` all of whose live children are among `dead`: int64, ascending."""
    if len(offsets) - 1 == offsets[-1]:
        return dead  # every node has one child
    parent_of_each = owners_of(offsets, dead)
    begins = np.flatnonzero(np.diff(parent_of_each, prepend=-1))
    parents = parent_of_each[begins]
    num_dead = np.diff(begins, append=len(dead))
    children = offsets[parents + 1] - offsets[parents] if live is None else live.count_children(depth, parents, offsets)
    died: NDArray[np.int64] = parents[num_dead == children]
    return died
