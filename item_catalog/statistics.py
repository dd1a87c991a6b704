"""What a catalogue looks like from afar: items, SIDs, collisions, branching, attributes, bytes. Knows no files."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from item_catalog.attributes import AttributeColumn
from item_catalog.catalog import Catalog
from item_catalog.trie import PrefixTrie


@dataclass(frozen=True, slots=True)
class LevelStatistics:
    """One level. `num_prefixes` ends with its code; branching is how many legal codes follow a prefix that leads here.

    At level 0 one prefix leads here, the empty one, so its mean and maximum are the number of legal first codes.
    num_chain_links are the prefixes that lead here and that one code alone may follow: there a beam has no choice.
    num_decided_sids are the SIDs that share their prefix up to this level's code with no other SID.
    """

    codebook_size: int
    num_prefixes: int
    mean_branching: float
    max_branching: int
    num_chain_links: int
    num_decided_sids: int


@dataclass(frozen=True, slots=True)
class AttributeStatistics:
    """One attribute. `num_distinct` counts no missing values."""

    kind: str
    num_distinct: int
    num_missing: int
    total_bytes: int


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
    attributes: Mapping[str, AttributeStatistics]


def catalog_statistics(catalog: Catalog) -> CatalogStatistics:
    """Read the offsets of `catalog` once, and sort each of its columns of integers and numbers."""
    trie = catalog.trie
    levels = []
    columns = zip(trie.layout.codebook_sizes, trie.offsets, _num_decided_sids(trie), strict=True)
    for size, offsets, num_decided in columns:
        branching = np.diff(offsets)
        levels.append(
            LevelStatistics(
                codebook_size=size,
                num_prefixes=int(offsets[-1]),
                mean_branching=float(branching.mean()),
                max_branching=int(branching.max()),
                num_chain_links=int(np.count_nonzero(branching == 1)),
                num_decided_sids=num_decided,
            )
        )
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
        attributes={name: _attribute_statistics(column) for name, column in catalog.attributes.items()},
    )


def _num_decided_sids(trie: PrefixTrie) -> list[int]:
    """By level, from below: where the leaves of a node begin is where those of its first child do."""
    first_leaves = np.arange(trie.num_leaves + 1)
    counts = []
    for offsets in reversed(trie.offsets):
        counts.append(int(np.count_nonzero(np.diff(first_leaves) == 1)))
        first_leaves = first_leaves[offsets]
    return counts[::-1]


def _attribute_statistics(column: AttributeColumn) -> AttributeStatistics:
    values = column.values if column.missing is None else column.values[~column.missing]
    return AttributeStatistics(
        kind=column.kind.value,
        num_distinct=len(np.unique(values)) if column.vocabulary is None else len(column.vocabulary),
        num_missing=len(column) - len(values),
        total_bytes=sum(array.nbytes for array in column.arrays().values()),
    )
