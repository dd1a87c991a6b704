"""A fair sample of a stream of points, in bounded memory, the same for the same stream and seed."""

import numpy as np
from numpy.typing import NDArray


class Reservoir:
    """Every point that was added is kept with the same chance (Vitter, Algorithm R, 1985).

    points: float64 [kept, 2], kept <= capacity.
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._kept = np.empty((capacity, 2))
        self._seen = 0

    @property
    def points(self) -> NDArray[np.float64]:
        """What is kept; in no particular order."""
        return self._kept[: self._seen].copy()

    def add(self, points: NDArray[np.float64]) -> None:
        """Offer points [n, 2]."""
        order = self._seen + np.arange(len(points))
        place = np.where(order < len(self._kept), order, self._random.integers(0, order + 1))
        chosen = place < len(self._kept)
        self._kept[place[chosen]] = points[chosen]  # of equal places the last one stays, as if added one by one
        self._seen += len(points)
