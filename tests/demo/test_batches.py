"""Training batches hold whole histories, newest items last, and nothing else."""

from itertools import islice

import numpy as np

from recall_service.demo.assortment import LAYOUT
from recall_service.demo.batches import BOS_ID, PAD_ID, endless_batches, padded_prompts
from recall_service.demo.shop import Shop
from recall_service.demo.tokens import sid_token_ids


def test_prompts_are_padded_on_the_right() -> None:
    prompts = padded_prompts([np.array([5, 6]), np.array([7, 8, 9])])
    assert prompts.tolist() == [[BOS_ID, 5, 6, PAD_ID], [BOS_ID, 7, 8, 9]]


def test_an_epoch_holds_the_newest_items_of_every_user_once(small_shop: Shop) -> None:
    max_history = 8
    batches = islice(endless_batches(small_shop, np.random.default_rng(0), max_history=max_history), 7)
    epoch = sorted(row[row != PAD_ID].tolist() for batch in batches for row in batch)
    tokens = sid_token_ids(LAYOUT, small_shop.assortment.sids)
    newest = [small_shop.train.of_user(user)[-max_history:] for user in range(small_shop.train.num_users)]
    assert epoch == sorted([BOS_ID, *tokens[history].ravel().tolist()] for history in newest)
