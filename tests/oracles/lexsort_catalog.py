"""The slow, obvious build: one lexsort of all rows, and every array from what then stands side by side."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def lexsorted_arrays(sids: NDArray[np.integer], item_ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Distinct rows -> the arrays of their catalogue, by the names they are stored under."""
    rows = np.lexsort((item_ids, *sids.T[::-1]))
    sids, ids = sids[rows], item_ids[rows]
    arrays: dict[str, NDArray[Any]] = {}
    parents = np.zeros(len(ids), np.int64)  # the number of each row's node, at the depth above
    for level in range(sids.shape[1]):
        nodes, first_rows = np.unique(sids[:, : level + 1], axis=0, return_index=True)
        arrays[f"trie_codes_{level}"] = nodes[:, -1].astype(np.uint16)
        arrays[f"trie_offsets_{level}"] = np.append(0, np.bincount(parents[first_rows]).cumsum()).astype(np.int32)
        begins = np.zeros(len(ids), bool)
        begins[first_rows] = True
        parents = begins.cumsum() - 1
    arrays["item_offsets"] = np.append(0, np.bincount(parents).cumsum()).astype(np.int32)
    return arrays | {"item_ids": ids, "item_order": np.argsort(ids).astype(np.int32)}
