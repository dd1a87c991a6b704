"""Index arrays from outside, checked before they index: numpy would quietly let -1 mean the last element."""

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
