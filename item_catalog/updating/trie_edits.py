"""SIDs that leave a trie and SIDs that come to it: every level spliced, none built anew. Knows no items."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.lockstep import lower_bounds
from item_catalog.trie import PrefixTrie
from item_catalog.updating.splice import Splice, emptied_owners, splice_offsets


class SidPlaces(NamedTuple):
    """Where SIDs [n] are in a trie, or would be.

    nodes: int64 [n, num_levels + 1], by depth, the node that is the SID's prefix; where there is none, the first node
        behind it, which may be the number of nodes.
    exists: bool [n, num_levels + 1], whether there is one.
    """

    nodes: NDArray[np.int64]
    exists: NDArray[np.bool_]

    @property
    def leaves(self) -> NDArray[np.int64]:
        """Int64 [n]."""
        return self.nodes[:, -1]

    @property
    def are_leaves(self) -> NDArray[np.bool_]:
        """Bool [n]: whether the whole SID exists."""
        return self.exists[:, -1]

    def take(self, rows: NDArray[np.integer]) -> "SidPlaces":
        """The places of `rows`."""
        return SidPlaces(self.nodes[rows], self.exists[rows])


class EditedTrie(NamedTuple):
    """A trie after an edit, and what happened to its leaves."""

    trie: PrefixTrie
    leaves: Splice


def locate(trie: PrefixTrie, sids: NDArray[np.int64]) -> SidPlaces:
    """SIDs int64 [n, num_levels] -> their places."""
    shape = (len(sids), trie.num_levels + 1)
    places = SidPlaces(np.zeros(shape, np.int64), np.ones(shape, bool))
    for level, (offsets, codes) in enumerate(zip(trie.offsets, trie.codes, strict=True)):
        parents, parents_exist = places.nodes[:, level], places.exists[:, level]
        firsts = offsets[parents].astype(np.int64)  # of a node behind all others: behind all of its children
        ends = np.where(parents_exist, offsets[np.minimum(parents + 1, len(offsets) - 1)], firsts)
        nodes = lower_bounds(codes.__getitem__, sids[:, level], firsts, ends)
        exists = nodes < ends
        exists[exists] = codes[nodes[exists]] == sids[exists, level]
        places.nodes[:, level + 1], places.exists[:, level + 1] = nodes, exists
    return places


def edit_trie(
    trie: PrefixTrie, removed_leaves: NDArray[np.int64], new_sids: NDArray[np.int64], places: SidPlaces
) -> EditedTrie:
    """Take leaves out and put new ones in; something must be left. A trie that stays as it is, is shared.

    removed_leaves: int64, ascending.
    new_sids: int64 [n, num_levels], distinct, in lexicographic order, none of them a SID of the trie.
    places: where they are; see `locate`.
    """
    begins = _begin_nodes(new_sids, places)
    removed = removed_leaves
    children = leaves = Splice(trie.num_leaves, removed, places.leaves)
    if leaves.changes_nothing:
        return EditedTrie(trie, leaves)
    offsets, codes = list(trie.offsets), list(trie.codes)
    for level in reversed(range(trie.num_levels)):
        rows = np.flatnonzero(begins[:, level + 1])  # one for each new child
        codes[level] = children.apply(codes[level], new_sids[rows, level].astype(np.uint16))

        has_old_parent = places.exists[rows, level]
        gaining = places.nodes[rows[has_old_parent], level]
        losing = np.searchsorted(offsets[level], removed.astype(offsets[level].dtype), side="right") - 1
        removed = emptied_owners(offsets[level], gaining, losing)
        parents = Splice(trie.num_nodes(level), removed, places.nodes[begins[:, level], level])
        # The parent of a child is the last that began with its row or before, if that is a new one.
        new_parents = np.cumsum(begins[:, level])[rows[~has_old_parent]] - 1
        offsets[level] = splice_offsets(
            offsets[level],
            parents,
            np.bincount(new_parents, minlength=len(parents.places)),
            gaining,
            losing,
        )
        children = parents
    return EditedTrie(PrefixTrie(trie.layout, tuple(offsets), tuple(codes)), leaves)


def _begin_nodes(new_sids: NDArray[np.int64], places: SidPlaces) -> NDArray[np.bool_]:
    """Bool [n, num_levels + 1]: whether a row is the first of those whose prefix is a new node at that depth."""
    begins = ~places.exists
    differs = np.logical_or.accumulate(new_sids[1:] != new_sids[:-1], axis=1)
    begins[1:, 1:] &= differs
    return begins
