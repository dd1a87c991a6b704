"""Holds an answer of the server against what brute force says it should be."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recall_service.client import RecallResult
from recall_service.demo.assortment import LAYOUT, Assortment
from recall_service.demo.brute_force import BruteForce, brute_force
from recall_service.demo.bundle_file import MODEL_DIRECTORY
from recall_service.demo.prepare import PreparedDemo
from recall_service.demo.tokens import BOS, SPECIAL_TOKENS, sid_token_ids
from recall_service.demo.training import MAX_HISTORY

_SCORE_TOLERANCE = 1e-4  # two fp32 forwards of different batch shapes


def score_everything(demo: PreparedDemo, user: int) -> BruteForce:
    """Every SID of the shop and its score for a held-out user. Takes seconds at the default size."""
    sids = demo.shop.assortment.sids
    history = demo.shop.held_out.of_user(user)[-MAX_HISTORY:]
    prompt = np.append(SPECIAL_TOKENS.index(BOS), sid_token_ids(LAYOUT, sids[history]).ravel())
    every_code = np.arange(max(LAYOUT.codebook_sizes))[:, None].repeat(LAYOUT.num_levels, axis=1)
    level_tokens = sid_token_ids(LAYOUT, every_code).T  # [levels, codes]
    return brute_force(demo.bundle_directory / MODEL_DIRECTORY, prompt, sids, level_tokens)


def equals_brute_force(
    truth: BruteForce, assortment: Assortment, live: NDArray[np.integer], answer: RecallResult
) -> bool:
    """Whether an answer is the beam of brute force over the items that may be answered, and its proven part their top.

    truth: of `score_everything`, for the user who got the answer. live: rows int [n] of the assortment.
    Scores are compared rank by rank, and each item with its own, so only rounding ties may change places.
    """
    left = truth.among(assortment.sids[live])
    expected = _items_of_beam(left, assortment.items_by_sid(live), answer.beam_width)
    scores = np.array([item.score for item in answer.items])
    own_scores = np.array([expected.get(item.item_id, -np.inf) for item in answer.items])
    proven = {item.sid: item.score for item in answer.items[: answer.proven_count]}
    return (
        _close(scores, np.array(list(expected.values()))[: len(scores)])
        and _close(scores, own_scores)
        and _close(np.array(list(proven.values())), left.top(len(proven)))
    )


def _items_of_beam(
    truth: BruteForce, items_on: Mapping[tuple[int, ...], Sequence[str]], width: int
) -> dict[str, float]:
    """Item id -> score of every item that a beam leads to, in the order the service promises."""
    return {
        item_id: float(score)
        for sid, score in zip(*truth.beam(width), strict=True)
        for item_id in items_on[tuple(sid.tolist())]
    }


def _close(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    return ours.shape == theirs.shape and bool(np.all(np.abs(ours - theirs) < _SCORE_TOLERANCE))
