"""Histories as training batches: `<bos>`, then the tokens of each item, oldest first, padded on the right."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from recall_service.demo.assortment import LAYOUT
from recall_service.demo.shop import Shop
from recall_service.demo.tokens import BOS, PAD, SPECIAL_TOKENS, sid_token_ids

PAD_ID = SPECIAL_TOKENS.index(PAD)
BOS_ID = SPECIAL_TOKENS.index(BOS)
_BATCH_USERS = 32
_LENGTH_JITTER = 4.0  # how far, in items, the order by length is shaken: batches mix a little and pad a little


def endless_batches(shop: Shop, rng: np.random.Generator, *, max_history: int) -> Iterator[NDArray[np.int64]]:
    """Token ids int64 [users, 1 + 3 x longest history of the batch], for ever: epoch after epoch of training users.

    max_history: how many of a user's newest items are read.
    """
    item_tokens = sid_token_ids(LAYOUT, shop.assortment.sids)
    histories = [shop.train.of_user(user)[-max_history:] for user in range(shop.train.num_users)]
    lens = np.array([len(history) for history in histories])
    while True:
        by_length = np.argsort(lens + rng.uniform(0, _LENGTH_JITTER, len(lens)))
        batches = np.array_split(by_length, math.ceil(len(by_length) / _BATCH_USERS))
        for place in rng.permutation(len(batches)):
            yield padded_prompts([item_tokens[histories[user]].ravel() for user in batches[place]])


def padded_prompts(sequences: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """<bos>, a sequence of token ids, and <pad> up to the longest: int64 [sequences, 1 + longest]."""
    prompts = np.full((len(sequences), 1 + max(map(len, sequences))), PAD_ID, np.int64)
    prompts[:, 0] = BOS_ID
    for prompt, sequence in zip(prompts, sequences, strict=True):
        prompt[1 : 1 + len(sequence)] = sequence
    return prompts
