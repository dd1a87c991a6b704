"""Beams -> items: the leaves' items in beam order, cut to the number asked for."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from recall_service.engine.request import BeamResult
from recall_service.serving.narrowing import Narrowing
from recall_service.serving.query import ShortReason


class RecalledItems(NamedTuple):
    """Items best first; those of one SID share its score and stand in the catalogue's stated order of ids.

    beams: int64 [items], which beam each came from.
    proven_count: the first so many stand on SIDs that are proven to be the model's true top.
    short_reason: why there are fewer than asked for, or None.
    """

    item_ids: tuple[str, ...]
    beams: NDArray[np.int64]
    proven_count: int
    short_reason: ShortReason | None


def items_of_beams(
    result: BeamResult, catalog: Catalog, num_items: int, narrowing: Narrowing | None = None
) -> RecalledItems:
    """The first `num_items` items that the beams lead to. Unique, since leaves are and no item has two SIDs.

    narrowing: what was searched, and may leave out some of the items of one SID; None: the whole catalogue.
    """
    assert result.leaves is not None, "only a constrained search leads to items"
    positions, counts = catalog.items_of_leaves(result.leaves)
    beams = np.repeat(np.arange(len(counts)), counts)
    if narrowing is not None:
        is_kept = narrowing.keeps(positions)
        positions, beams = positions[is_kept], beams[is_kept]
    beams = beams[:num_items]
    return RecalledItems(
        item_ids=tuple(catalog.item_ids.take(positions[:num_items])),
        beams=beams,
        proven_count=int((beams < result.proven_count).sum()),
        short_reason=_short_reason(result, narrowing, len(beams), num_items),
    )


def _short_reason(
    result: BeamResult, narrowing: Narrowing | None, num_found: int, num_items: int
) -> ShortReason | None:
    if num_found == num_items:
        return None
    if result.bound > -np.inf:  # something was pruned
        return ShortReason.BEAM_TOO_NARROW
    is_part = narrowing is not None and narrowing.leaves_out_items
    return ShortReason.FILTER_TOO_NARROW if is_part else ShortReason.CATALOG_EXHAUSTED
