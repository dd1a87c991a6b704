"""Answers to cache, what computes them, and an observer that counts."""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from recall_service.engine.request import ScoreSpace
from recall_service.serving.hooks import NullObserver
from recall_service.serving.items_wire import encode_items
from recall_service.serving.query import RecallAnswer, ServedFrom, Timings


def make_answer(num_items: int = 5, *, with_steps: bool = False, **changes: Any) -> RecallAnswer:
    generator = np.random.default_rng(num_items)
    sids = generator.integers(0, 256, (num_items, 4), np.int32)
    item_ids = tuple(f"item-ö-{i}" for i in range(num_items))
    scores = -np.sort(generator.random(num_items))
    step_log_probs = -generator.random((num_items, 4), np.float32) if with_steps else None
    step_ranks = sids + 1 if with_steps else None
    answer = RecallAnswer(
        item_ids=item_ids,
        scores=scores,
        sids=sids,
        step_log_probs=step_log_probs,
        step_ranks=step_ranks,
        items_wire=encode_items(item_ids, scores, sids, step_log_probs, step_ranks),
        short_reason=None,
        proven_count=num_items // 2,
        served_from=ServedFrom.ENGINE,
        bundle="demo",
        bundle_version="1",
        catalog_version="2026-01-01",
        score_space=ScoreSpace.CATALOG,
        beam_width=40,
        unknown_history_items=3,
        unknown_excluded_items=2,
        rows_forwarded=121,
        rows_skipped=79,
        timings=Timings(0.1, 0.2, 0.3),
    )
    return dataclasses.replace(answer, **changes)


def stored_part(answer: RecallAnswer) -> dict[str, Any]:
    """What of an answer every tier must give back, as values that compare with ==."""
    own_to_a_call = {"served_from", "rows_forwarded", "rows_skipped", "timings"}
    values = {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    return {
        name: (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
        if name not in own_to_a_call
    }


class CountingObserver(NullObserver):
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.coalesced = 0
        self.refreshes: Counter[str] = Counter()
        self.breaker: list[bool] = []
        self.stages: Counter[str] = Counter()

    def stage(self, stage: str, seconds: float) -> None:
        self.stages[stage] += 1

    def cache_request(self, tier: str, result: str) -> None:
        self.requests[tier, result] += 1

    def cache_coalesced(self) -> None:
        self.coalesced += 1

    def cache_refresh(self, result: str) -> None:
        self.refreshes[result] += 1

    def cache_breaker(self, *, is_open: bool) -> None:
        self.breaker.append(is_open)


class Computation:
    """A search that counts how often it ran."""

    def __init__(self, answer: RecallAnswer | None = None) -> None:
        self.expected = answer or make_answer()
        self.runs = 0

    async def __call__(self) -> RecallAnswer:
        self.runs += 1
        return self.expected


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
    """Wait, for at most so long, for something that happens in the background."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.005)
