"""The demo's figures: what the answers are worth, checked against the shop, which no part of the service has seen."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recall_service.client import RecallResult
from recall_service.demo.asking import BEAM_WIDTH, NUM_ITEMS
from recall_service.demo.floors import markov_floor, popularity_floor, recall_at
from recall_service.demo.narrowing import Narrowing
from recall_service.demo.shop import Shop
from recall_service.demo.sold_out import SoldOut
from recall_service.errors import SetupError


def recall_figures(
    shop: Shop,
    first: RecallResult,
    again: Sequence[RecallResult],
    alone: Sequence[RecallResult],
    answers: Sequence[RecallResult],
) -> dict[str, Any]:
    """Of the whole catalogue.

    first, again: one user's question, the first time and then from the cache. alone: users asked one after another.
    answers: one for each held-out user, the first user first.
    """
    num_items, last = len(shop.assortment.item_ids), shop.held_out.last_items[: len(answers)]
    items_on = shop.assortment.items_by_sid(np.arange(num_items))
    on_sid = [_num_valid(answer, items_on) for answer in (first, *answers)]
    unique = [len({item.item_id for item in answer.items}) for answer in (first, *answers)]
    targets = shop.targets[: len(answers)]
    recalled = [[item.item_id for item in answer.items] for answer in answers]
    popular = popularity_floor(shop.train, num_items, len(answers), NUM_ITEMS)
    markov = markov_floor(shop.train, num_items, last, NUM_ITEMS)
    return {
        "items": len(first.items),
        "valid": on_sid[0],
        "unique": unique[0],
        "all_answers_valid": set(on_sid) == set(unique) == {NUM_ITEMS},
        "proven_count": first.proven_count,
        "engine_ms": round(statistics.median((a.prefill_seconds + a.decode_seconds) * 1000 for a in alone), 2),
        "cached_ms": round(statistics.median(a.total_seconds * 1000 for a in again), 3),
        "cached_from": again[0].served_from,
        "recall_at_100": round(recall_at(recalled, shop.assortment.ids_of(targets), NUM_ITEMS), 4),
        "popularity_at_100": round(recall_at(popular.tolist(), targets.tolist(), NUM_ITEMS), 4),
        "markov_at_100": round(recall_at(markov.tolist(), targets.tolist(), NUM_ITEMS), 4),
        "users": len(answers),
        "catalog_items": num_items,
        "beam_width": BEAM_WIDTH,
    }


def narrowing_figures(shop: Shop, narrowing: Narrowing, narrowed: RecallResult) -> dict[str, Any]:
    """Of the first user's narrower question. Valid are the items that the shop says are left."""
    num_valid = _num_valid(narrowed, shop.assortment.items_by_sid(narrowing.live))
    return {
        "filtered_left": len(narrowing.live),
        "filtered_items": len(narrowed.items),
        "filtered_valid": num_valid,
        "filtered_complete": num_valid == len(narrowed.items) == min(NUM_ITEMS, len(narrowing.live)),
        "filtered_proven": narrowed.proven_count,
        "filtered_ms": round(narrowed.total_seconds * 1000, 2),
    }


def update_figures(before: RecallResult, sold_out: SoldOut) -> dict[str, Any]:
    """Of the item that was sold out: whether it was gone, on another version, and all is as `before` afterwards."""
    meanwhile, afterwards = sold_out.meanwhile, sold_out.afterwards
    return {
        "update_live_ms": round(sold_out.live_seconds * 1000, 1),
        "update_seen": sold_out.item_id not in {item.item_id for item in meanwhile.items}
        and meanwhile.catalog_version != before.catalog_version,
        "update_undone": afterwards.items == before.items and afterwards.catalog_version == before.catalog_version,
    }


def check_figures(figures: Mapping[str, Any]) -> None:
    """Raises SetupError, naming them, when any of the facts among the figures are not so."""
    wrong = [name for name, value in figures.items() if value is False]
    if wrong:
        raise SetupError(f"demo: not so: {', '.join(wrong)}; please report this: {json.dumps(figures)}")


def _num_valid(answer: RecallResult, items_on: Mapping[tuple[int, ...], Sequence[str]]) -> int:
    return sum(item.item_id in items_on.get(item.sid, ()) for item in answer.items)
