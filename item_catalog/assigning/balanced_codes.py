"""Codes of limited capacity: prices under which few points want a code that is full, and a hard limit on top.

Prices rise as in an ascending auction (Demange, Gale and Sotomayor 1986, "Multi-Item Auctions"): a code that more
points want than it may hold becomes dearer by just what sends the excess on to their next best codes. A code with a
price stays full, so where the auction ends with no code over its capacity, linear programming duality says that no
other assignment within the capacities has a lesser sum of squared distances. Prices are learnt on a sample and then
hold for points that arrive in any order, such as a file sorted by category; what they miss, the hard limit catches.

Constrained k-means (Bradley, Bennett and Demiriz 2000, MSR-TR-2000-65) solves the same problem as a flow on all points
at once; the balanced k-means of OneRec (Deng et al. 2025, arXiv:2502.18965, Algorithm 1) lets clusters of one size
choose their points in turn.
"""

import math

import numpy as np
from numpy.typing import NDArray

from item_catalog.assigning.kmeans import Choice, Points, Prices, choices


def capacity_of(num_points: int, num_codes: int, balance: float) -> int:
    """How many points a code may hold: `balance` (>= 1) times its fair share, rounded up, so that all have a place."""
    return math.ceil(min(num_points, max(balance * num_points / num_codes, -(-num_points // num_codes))))


def balancing_prices(points: Points, centroids: Points, capacity: int, max_raises: int) -> Prices:
    """Prices float32 [codes] under which, but for ties, no more than `capacity` points take a code.

    Neighbours that are all crowded outbid one another in small steps: after `max_raises` some excess may be left.
    """
    prices = np.zeros(len(centroids), np.float32)
    wanted = choices(points, centroids, prices)
    for _ in range(max_raises):
        raises = _raises(wanted, len(centroids), capacity)
        if not raises.any():
            break
        prices += raises
        moving = np.flatnonzero(raises[wanted.codes] > 0)
        wanted.codes[moving], wanted.regrets[moving] = choices(points[moving], centroids, prices)
    return prices


def codes_within(points: Points, centroids: Points, prices: Prices, room: NDArray[np.int64]) -> NDArray[np.int64]:
    """Int64 [n]: the cheapest codes that have room, where a code that overflows keeps whom leaving would cost most.

    `room` int64 [codes] says how many more points each code takes, in all at least n; what is used is taken off it.
    """
    codes = np.empty(len(points), np.int64)
    waiting = np.arange(len(points))
    while len(waiting):
        open_prices = np.where(room > 0, prices, np.inf).astype(np.float32)
        wanted = choices(points[waiting], centroids, open_prices)
        order = np.lexsort((-wanted.regrets, wanted.codes))
        wanted_in_order = wanted.codes[order]
        has_place = _rank_in_run(wanted_in_order) < room[wanted_in_order]
        codes[waiting[order]] = wanted_in_order
        room -= np.bincount(wanted_in_order[has_place], minlength=len(room))
        waiting = np.sort(waiting[order[~has_place]])
    return codes


def _raises(wanted: Choice, num_codes: int, capacity: int) -> Prices:
    """By how much each code must rise for its excess to leave, float32 [codes]; 0 where there is none."""
    loads = np.bincount(wanted.codes, minlength=num_codes)
    crowded = np.flatnonzero(loads > capacity)
    order = np.lexsort((wanted.regrets, wanted.codes))
    first_to_stay = (np.cumsum(loads) - loads)[crowded] + loads[crowded] - capacity
    regrets = wanted.regrets[order]
    raises = np.zeros(num_codes, np.float32)
    # Between the last that must leave and the first that may stay: exactly the excess is then better off elsewhere.
    raises[crowded] = (regrets[first_to_stay - 1] + regrets[first_to_stay]) / 2
    return raises


def _rank_in_run(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many equal values stand before each one, in an ascending array."""
    return np.arange(len(values)) - np.searchsorted(values, values)
