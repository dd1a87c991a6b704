"""One immutable, versioned snapshot of a catalogue: which SIDs exist, and which items stand on each.

Items have positions 0..num_items-1, sorted by leaf and then by id; everything here is a bulk translation between ids,
positions, leaves and SIDs, with numpy arrays that may be mapped from disk. Knows no files, no tokens and no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from item_catalog.attributes import AttributeColumn, AttributeKind
from item_catalog.errors import CatalogError
from item_catalog.fingerprint import content_version, fingerprint
from item_catalog.indices import checked_indices, ranges
from item_catalog.item_ids import IntegerIds, ItemIds, TextIds
from item_catalog.sid import SidLayout
from item_catalog.trie import PrefixTrie


class LeafItems(NamedTuple):
    """The items of several leaves, leaf after leaf.

    positions: int64 [sum of counts], within a leaf in ascending order of ids.
    counts: int64 [leaves], how many items each leaf has; at least 1.
    """

    positions: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """A snapshot.

    item_offsets: int32 (int64 from 2**31 items) [num_leaves + 1]; leaf i has the items at positions
        item_offsets[i] : item_offsets[i + 1].
    version: 32 hexadecimal digits that follow from layout and arrays, so that equal content has an equal version.
    attributes: what is known of the items, by name, ascending.
    """

    trie: PrefixTrie
    item_offsets: NDArray[np.integer]
    item_ids: ItemIds
    version: str
    attributes: Mapping[str, AttributeColumn] = field(default_factory=dict)

    @classmethod
    def snapshot(
        cls,
        trie: PrefixTrie,
        item_offsets: NDArray[np.integer],
        item_ids: ItemIds,
        attributes: Mapping[str, AttributeColumn] | None = None,
    ) -> "Catalog":
        """Take the arrays over, make them read-only, and name their content by its version."""
        by_name = dict(sorted((attributes or {}).items()))
        arrays = named_arrays(trie, item_offsets, item_ids, by_name)
        for array in arrays.values():
            array.setflags(write=False)
        fingerprints = {name: fingerprint(array) for name, array in arrays.items()}
        return cls(trie, item_offsets, item_ids, content_version(trie.layout, fingerprints), by_name)

    @classmethod
    def from_arrays(
        cls,
        layout: SidLayout,
        id_kind: str,
        attributes: Mapping[str, AttributeKind],
        arrays: Mapping[str, NDArray[Any]],
        version: str,
    ) -> "Catalog":
        """The inverse of `arrays`; the caller vouches that `version` is that of the content.

        Raises CatalogError when the texts of an attribute would lie outside their bytes.
        """
        levels = range(layout.num_levels)
        offsets = tuple(arrays[f"trie_offsets_{level}"] for level in levels)
        codes = tuple(arrays[f"trie_codes_{level}"] for level in levels)
        item_ids: ItemIds
        if id_kind == IntegerIds.KIND:
            item_ids = IntegerIds(arrays["item_ids"], arrays["item_order"])
        else:
            item_ids = TextIds(arrays["item_id_offsets"], arrays["item_id_utf8"], arrays["item_order"])
        columns = {}
        for attribute, kind in sorted(attributes.items()):
            prefix = f"attribute.{attribute}."
            parts = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
            columns[attribute] = AttributeColumn.from_arrays(attribute, kind, parts)
        return cls(PrefixTrie(layout, offsets, codes), arrays["item_offsets"], item_ids, version, columns)

    @property
    def layout(self) -> SidLayout:
        """Levels and codebook sizes of every SID."""
        return self.trie.layout

    @property
    def num_items(self) -> int:
        """How many items there are."""
        return len(self.item_ids)

    def items_of_leaves(self, leaves: ArrayLike) -> LeafItems:
        """Leaves int [n] -> all their items. Raises CatalogError for a leaf that is none."""
        wanted = checked_indices("leaves", leaves, self.trie.num_leaves)
        starts = self.item_offsets[wanted].astype(np.int64)
        counts = self.item_offsets[wanted + 1] - starts
        return LeafItems(ranges(starts, counts), counts)

    def find(self, item_ids: Sequence[str]) -> NDArray[np.int64]:
        """Ids [n] -> their positions int64 [n], NOT_FOUND for an id that no item has."""
        return self.item_ids.find(item_ids)

    def leaves_of(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Positions int [n] -> their leaves int64 [n]. Raises CatalogError for a position that is none."""
        wanted = checked_indices("positions", positions, self.num_items)
        # asked in its own dtype, or numpy would first copy all of item_offsets to int64
        return np.searchsorted(self.item_offsets, wanted.astype(self.item_offsets.dtype), side="right") - 1

    def sids_of(self, positions: ArrayLike) -> NDArray[np.int32]:
        """Positions int [n] -> their SIDs int32 [n, num_levels]. Raises CatalogError for a position that is none."""
        return self.trie.leaf_sids(self.leaves_of(positions))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array, by the name it is stored under."""
        return named_arrays(self.trie, self.item_offsets, self.item_ids, self.attributes)

    def check(self) -> None:
        """Raise CatalogError naming the first broken invariant. Linear in the size of the catalogue."""
        self.trie.check()
        offsets = self.item_offsets
        if len(offsets) != self.trie.num_leaves + 1 or offsets[0] != 0 or offsets[-1] != self.num_items:
            raise CatalogError("item_offsets: they do not span the items; rebuild the catalogue")
        if not np.all(offsets[:-1] < offsets[1:]):
            raise CatalogError("item_offsets: a SID has no item; rebuild the catalogue")
        self.item_ids.check(offsets)
        for name, column in self.attributes.items():
            column.check(name, self.num_items)


def named_arrays(
    trie: PrefixTrie,
    item_offsets: NDArray[np.integer],
    item_ids: ItemIds,
    attributes: Mapping[str, AttributeColumn],
) -> dict[str, NDArray[Any]]:
    """Every array of a catalogue, by the name it is stored under."""
    arrays: dict[str, NDArray[Any]] = {}
    for level in range(trie.num_levels):
        arrays[f"trie_offsets_{level}"] = trie.offsets[level]
        arrays[f"trie_codes_{level}"] = trie.codes[level]
    arrays |= {"item_offsets": item_offsets, **item_ids.arrays()}
    for attribute, column in attributes.items():
        arrays |= {f"attribute.{attribute}.{part}": array for part, array in column.arrays().items()}
    return arrays
