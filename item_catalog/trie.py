"""The prefix trie of a catalogue's SIDs as one CSR pair per level. Pure data: numpy arrays, memory-mappable.

Nodes at depth d are numbered 0..num_nodes(d)-1 in lexicographic order of their prefixes; depth 0 is the root alone,
depth `num_levels` are the leaves, one for each distinct SID. Since children of consecutive nodes are consecutive, the
position of an edge in the CSR arrays *is* the number of the child it leads to, and no child pointers are stored:

    children of node i at depth d  =  nodes offsets[d][i] : offsets[d][i + 1] at depth d + 1
    code on the edge into node j   =  codes[d][j], strictly ascending among the children of one node

This module knows no items, no tokens and no device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout

NOT_FOUND = -1


def offset_dtype(count: int) -> np.dtype[np.signedinteger]:
    """The dtype of offsets into `count` things: int32, or int64 from 2**31."""
    return np.dtype(np.int32 if count < 2**31 else np.int64)


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

    @classmethod
    def from_sorted_sids(cls, layout: SidLayout, sids: NDArray[np.integer]) -> "PrefixTrie":
        """Distinct SIDs int [n, num_levels] in lexicographic order, n >= 1, every code in its codebook -> their trie.

        The caller vouches for order and range; leaf i is row i.
        """
        begins_prefix = np.zeros(len(sids), bool)
        begins_prefix[0] = True  # the root, the only prefix of length 0
        offsets, codes = [], []
        for level in range(layout.num_levels):
            column = sids[:, level]
            begins_parent = begins_prefix.copy()
            begins_prefix[1:] |= column[1:] != column[:-1]
            child_rows = np.flatnonzero(begins_prefix)  # the row where each child begins
            first_children = np.flatnonzero(begins_parent.take(child_rows))
            offsets.append(np.append(first_children, len(child_rows)).astype(offset_dtype(len(child_rows))))
            codes.append(column.take(child_rows).astype(np.uint16, copy=False))
        return cls(layout, tuple(offsets), tuple(codes))

    @classmethod
    def joined(cls, tries: Sequence["PrefixTrie"]) -> "PrefixTrie":
        """Tries of one layout -> the trie of all their SIDs, n >= 1. The first codes of each are above those before.

        The caller vouches for the order; leaves keep theirs.
        """
        layout = tries[0].layout
        codes = tuple(np.concatenate([trie.codes[level] for trie in tries]) for level in range(layout.num_levels))
        root_offsets = np.array([0, len(codes[0])], offset_dtype(len(codes[0])))
        below = (_joined_offsets([trie.offsets[level] for trie in tries]) for level in range(1, layout.num_levels))
        return cls(layout, (root_offsets, *below), codes)

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

    def leaf_sids(self, leaves: NDArray[np.integer]) -> NDArray[np.int32]:
        """Leaves int [n] -> their SIDs int32 [n, num_levels], by walking up: the parent of j is found in offsets."""
        nodes = np.asarray(leaves, np.int64)
        sids = np.empty((len(nodes), self.num_levels), np.int32)
        for level in reversed(range(self.num_levels)):
            offsets = self.offsets[level]
            sids[:, level] = self.codes[level][nodes]
            # asked in its own dtype, or numpy would first copy all of offsets to int64
            nodes = np.searchsorted(offsets, nodes.astype(offsets.dtype), side="right") - 1
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
            may_fall = np.zeros(len(codes), bool)
            may_fall[offsets[:-1]] = True  # the first child of a node has no sibling before it
            if not np.all(may_fall[1:] | (codes[1:] > codes[:-1])):
                raise CatalogError(f"trie: codes of level {level} are not ascending in a node; rebuild the catalogue")


def _joined_offsets(parts: Sequence[NDArray[np.integer]]) -> NDArray[np.signedinteger]:
    """Offsets of neighbours, each from 0 -> offsets of them together."""
    num_children = [int(part[-1]) for part in parts]
    joined = np.empty(sum(len(part) - 1 for part in parts) + 1, offset_dtype(sum(num_children)))
    joined[-1] = sum(num_children)
    node = child = 0
    for part, count in zip(parts, num_children, strict=True):
        np.add(part[:-1], child, out=joined[node : node + len(part) - 1], casting="unsafe")
        node, child = node + len(part) - 1, child + count
    return joined
