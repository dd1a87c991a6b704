"""Index arrays: checked where they come from outside, as numpy would quietly let -1 mean the last element; and made."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from item_catalog.errors import CatalogError


def checked_indices(name: str, indices: ArrayLike, count: int) -> NDArray[np.int64]:
    """`indices` as int64 [n]. Raises CatalogError, calling them `name`, when one is not in 0..count-1."""
    checked = np.asarray(indices, np.int64)
    if len(checked) and not (checked.min() >= 0 and checked.max() < count):
        stray = checked[(checked < 0) | (checked >= count)][0]
        raise CatalogError(f"{name}: {stray} is not one of 0 to {count - 1}; leave out those that were not found")
    return checked


def ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[np.int64]:
    """For each of starts [n], as many numbers from there on as its count; all in one array."""
    first_outputs = np.cumsum(counts, dtype=np.int64) - counts
    numbers: NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(starts - first_outputs, counts)
    return numbers
