"""What a catalogue looks like from afar: items, SIDs, collisions, branching per level, bytes. Knows no files."""

from dataclasses import dataclass

import numpy as np

from item_catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class LevelStatistics:
    """One level. `num_prefixes` ends with its code; branching is how many legal codes follow a prefix that leads here.

    At level 0 one prefix leads here, the empty one, so its mean and maximum are the number of legal first codes.
    """

    codebook_size: int
    num_prefixes: int
    mean_branching: float
    max_branching: int


@dataclass(frozen=True, slots=True)
class CatalogStatistics:
    """Counts of a catalogue. A shared SID is one with more than one item."""

    num_items: int
    num_sids: int
    num_shared_sids: int
    num_items_on_shared_sids: int
    max_items_per_sid: int
    trie_bytes: int
    total_bytes: int
    levels: tuple[LevelStatistics, ...]


def catalog_statistics(catalog: Catalog) -> CatalogStatistics:
    """Read the offsets of `catalog` once."""
    trie = catalog.trie
    levels = []
    for size, offsets, codes in zip(trie.layout.codebook_sizes, trie.offsets, trie.codes, strict=True):
        branching = np.diff(offsets)
        levels.append(LevelStatistics(size, len(codes), float(branching.mean()), int(branching.max())))
    items_per_sid = np.diff(catalog.item_offsets)
    shared = items_per_sid[items_per_sid > 1]
    return CatalogStatistics(
        num_items=catalog.num_items,
        num_sids=trie.num_leaves,
        num_shared_sids=len(shared),
        num_items_on_shared_sids=int(shared.sum()),
        max_items_per_sid=int(items_per_sid.max()),
        trie_bytes=sum(array.nbytes for array in (*trie.offsets, *trie.codes)),
        total_bytes=sum(array.nbytes for array in catalog.arrays().values()),
        levels=tuple(levels),
    )
