"""How good SIDs are: how evenly codes are used, what quantisation loses, how many items share a SID. Knows no files."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.sid import SidLayout


@dataclass(frozen=True, slots=True)
class LevelQuality:
    """One level.

    used_codes: codes with at least one item.
    perplexity: 2 to the entropy of the codes: as many codes used evenly would carry as much information.
    max_items_per_code: over all prefixes.
    relative_residual: root of what is left of the embeddings' squared distance from their mean after this level; 1 is
        as bad as one code, 0 lossless.
    """

    codebook_size: int
    used_codes: int
    entropy_bits: float
    perplexity: float
    max_items_per_code: int
    relative_residual: float


@dataclass(frozen=True, slots=True)
class SidQuality:
    """All levels, and collisions. A shared SID is one with more than one item.

    items_per_sid: pairs (items, SIDs): how many SIDs have that many items, ascending.
    """

    num_items: int
    num_sids: int
    num_shared_sids: int
    num_items_on_shared_sids: int
    max_items_per_sid: int
    items_per_sid: tuple[tuple[int, int], ...]
    levels: tuple[LevelQuality, ...]


def sid_quality(layout: SidLayout, sids: NDArray[np.integer], relative_residuals: tuple[float, ...]) -> SidQuality:
    """Measure SIDs [items, levels] of at least one item, given what each level left."""
    _, counts = np.unique(layout.pack(sids), axis=0, return_counts=True)
    sizes, sids_of_size = np.unique(counts, return_counts=True)
    shared = counts[counts > 1]
    return SidQuality(
        num_items=len(sids),
        num_sids=len(counts),
        num_shared_sids=len(shared),
        num_items_on_shared_sids=int(shared.sum()),
        max_items_per_sid=int(counts.max()),
        items_per_sid=tuple(zip(sizes.tolist(), sids_of_size.tolist(), strict=True)),
        levels=tuple(
            _level_quality(size, sids[:, level], relative_residuals[level])
            for level, size in enumerate(layout.codebook_sizes)
        ),
    )


def _level_quality(size: int, codes: NDArray[np.integer], relative_residual: float) -> LevelQuality:
    loads = np.bincount(codes, minlength=size)
    shares = loads[loads > 0] / len(codes)
    entropy_bits = abs(float(-(shares * np.log2(shares)).sum()))  # not -0.0
    return LevelQuality(size, len(shares), entropy_bits, 2**entropy_bits, int(loads.max()), relative_residual)
