"""Last codes that no other item of the same prefix has: the next nearest free one where the nearest is taken.

What the field calls greedy re-assignment. Who comes first keeps the nearest code; an item whose prefix has every code
taken keeps its nearest and shares it. This module knows no prices and no file.
"""

import numpy as np
from numpy.typing import NDArray

from item_catalog.assigning.kmeans import Points, cheapest_codes, cost_blocks


class DistinctCodes:
    """The SIDs given so far. One object sees all items, in chunks."""

    def __init__(self, centroids: Points) -> None:
        self._centroids = centroids
        # SIDs as prefix * codes + code, ascending: of earlier chunks, and of this one, which is small and grows often.
        self._taken = np.empty(0, np.int64)
        self._taken_here = np.empty(0, np.int64)

    def give(self, prefixes: NDArray[np.int64], points: Points) -> NDArray[np.int64]:
        """Last codes int64 [n] of the items that have those prefixes (int64 [n], below 2**63 / codes)."""
        codes = cheapest_codes(points, self._centroids)
        late = self._without_place(prefixes, codes, np.arange(len(codes)))
        for block, costs in cost_blocks(points[late], self._centroids, None):
            self._give_next(prefixes, codes, late[block], np.argsort(costs, axis=1, kind="stable"))
        self._taken = np.insert(self._taken, np.searchsorted(self._taken, self._taken_here), self._taken_here)
        self._taken_here = np.empty(0, np.int64)
        return codes

    def _give_next(
        self,
        prefixes: NDArray[np.int64],
        codes: NDArray[np.int64],
        rows: NDArray[np.int64],
        ranking: NDArray[np.int64],
    ) -> None:
        """Write to `codes` the first free one of each row's `ranking` [rows, codes]."""
        waiting = np.arange(len(rows))
        for rank in range(1, ranking.shape[1]):
            wanted = ranking[waiting, rank]
            late = self._without_place(prefixes[rows[waiting]], wanted, waiting)
            placed = np.setdiff1d(waiting, late, assume_unique=True)
            codes[rows[placed]] = ranking[placed, rank]
            waiting = late
            if not len(waiting):
                return

    def _without_place(
        self, prefixes: NDArray[np.int64], codes: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Take what is free of (prefix, code), first come first served; the `rows` that get nothing, ascending."""
        sids, first_rows = np.unique(prefixes * len(self._centroids) + codes, return_index=True)
        is_free = ~(_is_among(sids, self._taken) | _is_among(sids, self._taken_here))
        self._taken_here = np.union1d(self._taken_here, sids[is_free])
        late = np.ones(len(rows), bool)
        late[first_rows[is_free]] = False
        return rows[late]


def _is_among(values: NDArray[np.int64], ascending: NDArray[np.int64]) -> NDArray[np.bool_]:
    places = np.searchsorted(ascending, values)
    is_among = np.zeros(len(values), bool)
    inside = places < len(ascending)
    is_among[inside] = ascending[places[inside]] == values[inside]
    return is_among
