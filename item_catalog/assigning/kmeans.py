"""k-means over points in memory: where the centroids start, how they move, and which one each point is given.

A price makes a code dearer than its distance: a point takes the code of the least squared distance plus price. Prices
are how `balanced_codes` keeps codes from filling up; without them this is Lloyd's k-means from k-means++ starts (Arthur
and Vassilvitskii 2007, "k-means++: The Advantages of Careful Seeding"). The same points, starts and prices give the
same centroids, on one machine and one numpy. This module knows no levels, no items and no file.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_BLOCK_COSTS = 1 << 22  # costs held at a time: 16 MiB, which is about what a processor keeps close to itself

Points = NDArray[np.float32]  # [n, dims], finite
Prices = NDArray[np.float32]  # [codes], not negative; infinite where a code takes no more points


class Choice(NamedTuple):
    """The cheapest code of each point, int64 [n], and by how much the next best code is dearer, float32 [n]."""

    codes: NDArray[np.int64]
    regrets: NDArray[np.float32]


def starting_centroids(points: Points, num_codes: int, random: np.random.Generator) -> Points:
    """Float32 [codes, dims]: points far from one another, drawn by k-means++.

    There are fewer than `num_codes` where the points have fewer different values: no two centroids are equal.
    """
    rows = [int(random.integers(len(points)))]
    gaps = _squared_distances(points, points[rows[0]])
    while len(rows) < num_codes and gaps.any():
        cumulative = np.cumsum(gaps, dtype=np.float64)
        # Above 0 and up to the whole: what is found has a gap, so it is no centroid yet.
        drawn = (1 - random.random()) * cumulative[-1]
        rows.append(int(np.searchsorted(cumulative, drawn)))
        np.minimum(gaps, _squared_distances(points, points[rows[-1]]), out=gaps)
    return points[rows]


def moved_centroids(
    points: Points,
    centroids: Points,
    iterations: int,
    pricing: Callable[[Points, Points], Prices] | None = None,
) -> Points:
    """Lloyd's iterations, until no point changes its code or there were `iterations` of them.

    `pricing` is asked for prices before each iteration, given the points and the centroids as they are by then. A
    centroid that no point takes starts anew where a point is farthest from its own.
    """
    codes: NDArray[np.int64] | None = None
    for _ in range(iterations):
        prices = pricing(points, centroids) if pricing else None
        taken = cheapest_codes(points, centroids, prices)
        if codes is not None and np.array_equal(taken, codes):
            break
        codes = taken
        centroids = _means(points, codes, centroids)
    return centroids


def cheapest_codes(points: Points, centroids: Points, prices: Prices | None = None) -> NDArray[np.int64]:
    """Int64 [n]: the code that costs each point least, the lowest of equals."""
    codes = np.empty(len(points), np.int64)
    for block, costs in cost_blocks(points, centroids, prices):
        codes[block] = costs.argmin(axis=1)
    return codes


def choices(points: Points, centroids: Points, prices: Prices) -> Choice:
    """What each point takes, and what being sent on to its next best code would cost it."""
    chosen = Choice(np.empty(len(points), np.int64), np.empty(len(points), np.float32))
    for block, costs in cost_blocks(points, centroids, prices):
        codes = costs.argmin(axis=1)
        rows = np.arange(len(codes))
        least = costs[rows, codes]
        costs[rows, codes] = np.inf
        chosen.codes[block] = codes
        chosen.regrets[block] = costs.min(axis=1) - least
    return chosen


def cost_blocks(
    points: Points, centroids: Points, prices: Prices | None
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Blocks of points, and what each code costs them, float32 [block, codes], which the caller may write to.

    A cost is the squared distance plus the price, less the squared length of the point: that is the same at each code.
    """
    offsets = np.einsum("cd,cd->c", centroids, centroids)
    if prices is not None:
        offsets = offsets + prices
    transposed = np.ascontiguousarray(-2 * centroids.T)
    size = max(1, _BLOCK_COSTS // len(centroids))
    for start in range(0, len(points), size):
        block = slice(start, min(start + size, len(points)))
        costs = points[block] @ transposed
        costs += offsets
        yield block, costs


def _means(points: Points, codes: NDArray[np.int64], centroids: Points) -> Points:
    """The mean of the points of each code, float32 [codes, dims]."""
    counts = np.bincount(codes, minlength=len(centroids))
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        gaps = _squared_distances(points, centroids[codes])
        farthest = np.argsort(-gaps, kind="stable")[: len(empty)]
        farthest = farthest[gaps[farthest] > 0]  # points on their centroid have nothing to start anew
        codes = codes.copy()
        codes[farthest] = empty[: len(farthest)]
        counts = np.bincount(codes, minlength=len(centroids))
    means = centroids.astype(np.float64)
    used = counts > 0
    for dimension in range(points.shape[1]):
        sums = np.bincount(codes, points[:, dimension], len(centroids))
        means[used, dimension] = sums[used] / counts[used]
    return means.astype(np.float32)


def _squared_distances(points: Points, others: NDArray[np.float32]) -> NDArray[np.float32]:
    # The differences themselves, and not products: a point's distance to its equal is exactly 0.
    differences = points - others
    squares: NDArray[np.float32] = np.einsum("nd,nd->n", differences, differences)
    return squares
