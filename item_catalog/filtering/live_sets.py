"""What a filter leaves of a catalogue: the items that pass, and level by level the nodes that lead to one.

Linear in the size of the catalogue, so it is worth keeping. Works in blocks: beside the answer, it needs memory for one
block alone. Knows no requests, no exclusions and no device.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.filtering.column_tests import column_test
from item_catalog.filtering.filters import Filter, allowed_by_attribute, filter_problems, filter_problems_in
from item_catalog.threads import slices
from item_catalog.trie import PrefixTrie

_BLOCK = 1 << 18  # items or nodes at once: what is made of a block stays in the processor's cache
_WIDE = 64  # children; the live ones of a node that has more are counted once, for nobody to look at each again


@dataclass(frozen=True, slots=True, eq=False)
class WideNodes:
    """The nodes of one depth that have many children, with how many of these are live.

    nodes: int64 [n], ascending. live_children: int64 [n].
    """

    nodes: NDArray[np.int64]
    live_children: NDArray[np.int64]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class LiveSet:
    """What passes a filter. Arrays may be one and the same where every node has one child.

    items: bool [num_items], in catalogue order.
    nodes: entry d: bool [num_nodes(d + 1)], whether a node at depth d + 1 leads to an item that passes.
    num_items: how many items pass.
    wide: entry d: of depth d, from the root to the leaves, whose children are the items.
    """

    items: NDArray[np.bool_]
    nodes: tuple[NDArray[np.bool_], ...]
    num_items: int
    wide: tuple[WideNodes, ...]

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        flags = {id(array): array.nbytes for array in (self.items, *self.nodes)}
        return sum(flags.values()) + sum(wide.nodes.nbytes + wide.live_children.nbytes for wide in self.wide)

    def count_children(self, depth: int, nodes: NDArray[np.int64], offsets: NDArray[np.integer]) -> NDArray[np.int64]:
        """How many live children nodes int64 [n] at `depth` have, int64 [n]; offsets: where the children of each begin.

        Costs by how many nodes are asked for, at most 64 looks for each.
        """
        starts = offsets[nodes].astype(np.int64)
        widths = offsets[nodes + 1] - starts
        is_wide = widths > _WIDE
        widths[is_wide] = 0
        ends = widths.cumsum()
        children = np.arange(widths.sum()) + np.repeat(starts - (ends - widths), widths)
        is_live = self.nodes[depth] if depth < len(self.nodes) else self.items
        live_before = np.append(0, is_live[children].cumsum())
        counts: NDArray[np.int64] = live_before[ends] - live_before[ends - widths]
        wide = self.wide[depth]
        counts[is_wide] = wide.live_children[np.searchsorted(wide.nodes, nodes[is_wide])]
        return counts


def live_set(catalog: Catalog, wanted: Filter) -> LiveSet:
    """All that passes a filter. Raises CatalogError for a filter that has problems in this catalogue."""
    items = live_items(catalog, wanted)
    nodes = live_nodes(catalog.trie, live_parents(catalog.item_offsets, items))
    children = (*nodes, items)
    parents = (*catalog.trie.offsets, catalog.item_offsets)
    wide = tuple(_wide_nodes(offsets, live) for offsets, live in zip(parents, children, strict=True))
    return LiveSet(items, nodes, int(np.count_nonzero(items)), wide)


def live_items(catalog: Catalog, wanted: Filter) -> NDArray[np.bool_]:
    """Which items pass a filter, bool [num_items]. Raises CatalogError for a filter with problems in this catalogue."""
    kinds = {name: column.kind for name, column in catalog.attributes.items()}
    for path, description in [*filter_problems(wanted), *filter_problems_in(wanted, kinds)]:
        raise CatalogError(f"filter.{path}: {description}")
    tests = [
        column_test(catalog.attributes[attribute], allowed)
        for attribute, allowed in allowed_by_attribute(wanted).items()
    ]
    live = np.ones(catalog.num_items, bool)
    for block in slices(catalog.num_items, _BLOCK):
        for passes in tests:
            live[block] &= passes(block)
    return live


def live_nodes(trie: PrefixTrie, live_leaves: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], ...]:
    """Leaves bool [num_leaves] -> entry d: bool [num_nodes(d + 1)], which nodes lead to a live leaf, or are one."""
    levels = [live_leaves]
    for offsets in reversed(trie.offsets[1:]):
        levels.append(live_parents(offsets, levels[-1]))
    return tuple(reversed(levels))


def live_parents(offsets: NDArray[np.integer], live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Bool [parents]: whether any child of each is live, of those from offsets[i] to offsets[i + 1] - 1, at least one.

    `live` itself where every parent has one child.
    """
    num_parents = len(offsets) - 1
    if num_parents == len(live):
        return live
    parents = np.empty(num_parents, bool)
    for block in slices(num_parents, _BLOCK):
        first, end = int(offsets[block.start]), int(offsets[block.stop])
        np.logical_or.reduceat(live[first:end], offsets[block] - first, out=parents[block])
    return parents


def _wide_nodes(offsets: NDArray[np.integer], live: NDArray[np.bool_]) -> WideNodes:
    nodes = np.concatenate(
        [
            block.start + np.flatnonzero(np.diff(offsets[block.start : block.stop + 1]) > _WIDE)
            for block in slices(len(offsets) - 1, _BLOCK)
        ]
    )
    return WideNodes(nodes, _count_live(live, offsets[nodes], offsets[nodes + 1]))


def _count_live(live: NDArray[np.bool_], starts: NDArray[np.integer], ends: NDArray[np.integer]) -> NDArray[np.int64]:
    """How many are live from starts[i] to ends[i] - 1, int64 [n], of ranges in order that do not overlap."""
    bounds = np.stack([starts, ends], axis=1).ravel()
    bounds = bounds[bounds < len(live)]  # the last range ends there anyhow
    counts: NDArray[np.int64] = np.add.reduceat(live, bounds, dtype=np.int64)[::2]  # between them, the gaps
    return counts
