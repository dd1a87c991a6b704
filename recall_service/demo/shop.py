"""The synthetic shop: an assortment, the histories of its shoppers, and held-out shoppers with what they took next.

Everything is drawn from one seed; equal arguments give equal shops. Knows no model and no files.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recall_service.demo.assortment import NUM_KINDS, Assortment, make_assortment
from recall_service.demo.shoppers import walk

_MIN_HISTORY = 5
_MAX_HISTORY = 24


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """What n users took, oldest first, one after the other.

    user_ids: n strings.
    offsets: int64 [n + 1]; the items of user i are items[offsets[i] : offsets[i + 1]], at least one.
    items: int32 [total], rows of the assortment.
    """

    user_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    items: NDArray[np.int32]

    @property
    def num_users(self) -> int:
        """How many users there are."""
        return len(self.user_ids)

    @property
    def last_items(self) -> NDArray[np.int32]:
        """The newest item of each user: int32 [n]."""
        return self.items[self.offsets[1:] - 1]

    def of_user(self, user: int) -> NDArray[np.int32]:
        """What one user took: int32 [history length]."""
        return self.items[self.offsets[user] : self.offsets[user + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class Shop:
    """Items, the users a model may learn from, and others to judge it by.

    train and held_out share no user. targets: int32 [held-out users], the item really taken after the history.
    """

    assortment: Assortment
    train: Histories
    held_out: Histories
    targets: NDArray[np.int32]


def make_shop(
    *, seed: int = 7, num_items: int = 20_000, num_train_users: int = 24_000, num_held_out_users: int = 1_000
) -> Shop:
    """Draw a shop. Takes a few seconds at the default size.

    Raises ValueError when there are fewer items than kinds of product, or no users of either sort.
    """
    if num_items < NUM_KINDS:
        raise ValueError(f"num_items: {num_items}; give at least {NUM_KINDS}, one for each kind of product")
    if num_train_users < 1 or num_held_out_users < 1:
        raise ValueError(f"users: {num_train_users} to train, {num_held_out_users} held out; give at least 1 of each")
    rng = np.random.default_rng(seed)
    assortment = make_assortment(rng, num_items)
    num_users = num_train_users + num_held_out_users
    taken = walk(rng, assortment, num_users, _MAX_HISTORY + 1)
    history_lens = rng.integers(_MIN_HISTORY, _MAX_HISTORY, size=num_users, endpoint=True)
    user_ids = tuple(f"user-{number:06d}" for number in range(num_users))
    held_out = slice(num_train_users, num_users)
    return Shop(
        assortment=assortment,
        train=_histories(user_ids[:num_train_users], taken[:num_train_users], history_lens[:num_train_users]),
        held_out=_histories(user_ids[held_out], taken[held_out], history_lens[held_out]),
        targets=taken[held_out][np.arange(num_held_out_users), history_lens[held_out]],
    )


def _histories(user_ids: tuple[str, ...], taken: NDArray[np.int32], lens: NDArray[np.int64]) -> Histories:
    """The first lens[i] of the items that user i took."""
    return Histories(
        user_ids=user_ids,
        offsets=np.concatenate([[0], np.cumsum(lens)]),
        items=taken[np.arange(taken.shape[1]) < lens[:, None]],
    )
