"""What a trained model must beat: recommending by popularity, and by what followed the last item before.

The protocol is the same for all: full ranking, items already seen stay in, the target is the item really taken next,
and a hit is counted on the item itself.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from recall_service.demo.shop import Histories

Item = TypeVar("Item", str, int)

_USERS_AT_ONCE = 256  # bounds the [users, items] scores held in memory


def popularity_floor(train: Histories, num_items: int, num_users: int, k: int) -> NDArray[np.int64]:
    """The k items taken most often, the same for every user: int64 [num_users, k], best first, ties by row."""
    ranking = np.argsort(-_popularity(train, num_items), kind="stable")[:k]
    return np.tile(ranking, (num_users, 1))


def markov_floor(train: Histories, num_items: int, last_items: NDArray[np.integer], k: int) -> NDArray[np.int64]:
    """The k items that most often followed each of last_items [n]: int64 [n, k], best first.

    Ties, and the places left when fewer than k items ever followed, go by popularity, then by row.
    """
    is_newest = np.zeros(len(train.items), bool)
    is_newest[train.offsets[1:] - 1] = True
    has_next = np.flatnonzero(~is_newest)
    edges, counts = np.unique(
        train.items[has_next].astype(np.int64) * num_items + train.items[has_next + 1], return_counts=True
    )
    offsets = np.searchsorted(edges, np.arange(num_items + 1) * num_items)
    popularity = _popularity(train, num_items)
    tie_break = popularity / (popularity.max() + 1)  # below one transition

    floors = []
    for start in range(0, len(last_items), _USERS_AT_ONCE):
        chunk = last_items[start : start + _USERS_AT_ONCE]
        scores = np.tile(tie_break, (len(chunk), 1))
        for row, item in enumerate(chunk):
            span = slice(offsets[item], offsets[item + 1])
            scores[row, edges[span] % num_items] += counts[span]
        floors.append(np.argsort(-scores, axis=1, kind="stable")[:, :k])
    return np.concatenate(floors)


def recall_at(recalled: Sequence[Sequence[Item]], targets: Sequence[Item], k: int) -> float:
    """The share of users whose target is among the first k of what was recalled for them."""
    return sum(target in items[:k] for items, target in zip(recalled, targets, strict=True)) / len(targets)


def _popularity(train: Histories, num_items: int) -> NDArray[np.int64]:
    return np.bincount(train.items, minlength=num_items)
