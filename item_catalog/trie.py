"""The prefix trie of a catalogue's SIDs as one CSR pair per level. Pure data: numpy arrays, memory-mappable.

Nodes at depth d are numbered 0..num_nodes(d)-1 in lexicographic order of their prefixes; depth 0 is the root alone,
depth `num_levels` are the leaves, one for each distinct SID. Since children of consecutive nodes are consecutive, the
position of an edge in the CSR arrays *is* the number of the child it leads to, and no child pointers are stored:

    children of node i at depth d  =  nodes offsets[d][i] : offsets[d][i + 1] at depth d + 1
    code on the edge into node j   =  codes[d][j], strictly ascending among the children of one node

This module knows no items, no tokens and no device.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout

NOT_FOUND = -1


@dataclass(frozen=True, slots=True, eq=False)
class PrefixTrie:
    """CSR arrays per level.

    layout: levels and codebook sizes.
    offsets: per level d, int32 (int64 from 2**31 edges) [num_nodes(d) + 1], from 0 to num_nodes(d + 1).
    codes: per level d, uint16 [num_nodes(d + 1)].
    """

    layout: SidLayout
    offsets: tuple[NDArray[np.integer], ...]
    codes: tuple[NDArray[np.uint16], ...]

    @property
    def num_levels(self) -> int:
        """Depth of the leaves."""
        return self.layout.num_levels

    @property
    def num_leaves(self) -> int:
        """How many distinct SIDs there are."""
        return len(self.codes[-1])

    def num_nodes(self, depth: int) -> int:
        """How many distinct prefixes of length `depth` there are."""
        return 1 if depth == 0 else len(self.codes[depth - 1])

    def find_leaves(self, sids: NDArray[np.integer]) -> NDArray[np.int64]:
        """SIDs int [n, num_levels] -> their leaves int64 [n], NOT_FOUND for a SID that no item has."""
        return np.array([self._find_leaf(sid) for sid in sids], np.int64)

    def _find_leaf(self, sid: NDArray[np.integer]) -> int:
        node = 0
        for level, code in enumerate(sid):
            start, end = int(self.offsets[level][node]), int(self.offsets[level][node + 1])
            position = start + int(np.searchsorted(self.codes[level][start:end], code))
            if position == end or self.codes[level][position] != code:
                return NOT_FOUND
            node = position
        return node

    def leaf_sids(self, leaves: NDArray[np.integer]) -> NDArray[np.int32]:
        """Leaves int [n] -> their SIDs int32 [n, num_levels], by walking up: the parent of j is found in offsets."""
        nodes = np.asarray(leaves, np.int64)
        sids = np.empty((len(nodes), self.num_levels), np.int32)
        for level in reversed(range(self.num_levels)):
            sids[:, level] = self.codes[level][nodes]
            nodes = np.searchsorted(self.offsets[level], nodes, side="right") - 1
        return sids

    def check(self) -> None:
        """Raise CatalogError naming the first broken invariant. Linear in the size of the trie."""
        if len(self.offsets) != self.num_levels or len(self.codes) != self.num_levels:
            raise CatalogError(f"trie: {len(self.codes)} levels of arrays for {self.num_levels} levels; rebuild it")
        for level, (offsets, codes) in enumerate(zip(self.offsets, self.codes, strict=True)):
            size = self.layout.codebook_sizes[level]
            if len(offsets) != self.num_nodes(level) + 1 or offsets[0] != 0 or offsets[-1] != len(codes):
                raise CatalogError(f"trie: offsets of level {level} do not span its codes; rebuild the catalogue")
            if not np.all(offsets[:-1] < offsets[1:]):
                raise CatalogError(f"trie: a node at depth {level} has no children; rebuild the catalogue")
            if len(codes) and codes.max() >= size:
                raise CatalogError(f"trie: code {codes.max()} at level {level} of {size} codes; rebuild the catalogue")
            inside_node = np.ones(len(codes), bool)
            inside_node[offsets[:-1]] = False  # the first child of a node has no sibling before it
            if not np.all(codes[1:][inside_node[1:]] > codes[:-1][inside_node[1:]]):
                raise CatalogError(f"trie: codes of level {level} are not ascending in a node; rebuild the catalogue")
