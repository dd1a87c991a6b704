"""One question from arrival to answer: pin a bundle, ask the cache, make the prompt, filter, search, map to items."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recall_service.engine.request import BeamRequest, BeamResult, Demand, Priority, SearchMode
from recall_service.errors import (
    DeadlineExpired,
    HistoryEmpty,
    InvalidRequest,
    NotReady,
    Overloaded,
    RecallError,
    Violation,
)
from recall_service.serving.answers import no_beams, to_answer
from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.cache.cache_key import cache_key
from recall_service.serving.cache.refreshes import REFRESH_SECONDS
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.hooks import NullTracer, Observer, Tracer
from recall_service.serving.lookup import look_up
from recall_service.serving.narrowing import Narrowing, is_narrowed, narrow
from recall_service.serving.query import BundleInfo, CacheMode, RecallAnswer, RecallQuery, ServedFrom
from recall_service.serving.search_spans import trace_search
from recall_service.serving.size_check import size_violations


@dataclass(slots=True)
class _Progress:
    """How far a call came: queue, prefill or decode, when it was given up; whether it computed its answer itself."""

    stage: str = "queue"
    computed: bool = False

    def set(self, stage: str) -> None:
        self.stage = stage


class Pipeline:
    """Answers queries from the live bundles, through the result cache; reports to `observer` and `tracer`."""

    def __init__(
        self, registry: Registry, cache: ResultCache, observer: Observer, tracer: Tracer | None = None
    ) -> None:
        self._registry, self._cache, self._observer = registry, cache, observer
        self._tracer = tracer or NullTracer()

    def bundles(self) -> Sequence[BundleInfo]:
        """Every live bundle, the default one first."""
        return self._registry.infos

    async def recall(self, query: RecallQuery, scene: str) -> RecallAnswer:
        """Answer one query. Cancelling this coroutine stops the work it started.

        Raises InvalidRequest, HistoryEmpty, UnknownVersion, Overloaded, DeadlineExpired, NotReady or EngineFailure.
        """
        started = time.monotonic()
        progress = _Progress()
        try:
            answer = await self._answer(query, progress)
        except (RecallError, asyncio.CancelledError) as error:
            self._report_failure(scene, error, time.monotonic() - started, query, progress)
            raise
        self._report_answer(scene, answer, time.monotonic() - started)
        return answer

    async def _answer(self, query: RecallQuery, progress: _Progress) -> RecallAnswer:
        live = self._registry.pin(query.bundle)
        num_items, beam_width = _sizes(query, live.info)
        if query.cache_mode is not CacheMode.USE:
            # Nobody but the engine can answer. Under overload most are refused, here in two thirds of the time that it
            # takes from within the cache: the engine's thread waits while the interpreter is busy with refusals.
            live.runner.gate.check(_demand(query, beam_width, live))
        key = cache_key(
            bundle=live.info.name,
            bundle_version=live.info.version,
            catalog_version=live.info.catalog_version,
            score_space=live.info.score_space,
            beam_width=beam_width,
            num_items=num_items,
            search_mode=query.search_mode,
            include_steps=query.include_steps,
            history=query.history,
            prompt=query.prompt,
            wanted=query.filter,
            exclude_item_ids=query.exclude_item_ids,
            exclude_history=query.exclude_history,
        )
        asked = time.monotonic()
        if query.cache_mode is CacheMode.USE and (fresh := self._cache.fresh(key)) is not None:
            self._tracer.span("cache", asked, time.monotonic(), result=fresh.served_from.value)
            return fresh
        query = query._replace(num_items=num_items, beam_width=beam_width)
        try:
            answer = await self._cache.answer(
                key,
                query.cache_mode,
                lambda: self._compute(query, live, progress, asked),
                lambda: self._recompute(query, live),
                seconds=None if query.deadline is None else query.deadline - asked,
                lane=bytes([query.priority]),
            )
        except TimeoutError:
            raise DeadlineExpired(progress.stage) from None
        if not progress.computed:
            result = "coalesced" if answer.served_from is ServedFrom.ENGINE else answer.served_from.value
            self._tracer.span("cache", asked, time.monotonic(), result=result)
        return answer

    def _recompute(self, query: RecallQuery, live: LiveBundle) -> Coroutine[Any, Any, RecallAnswer]:
        """For no caller: behind everybody else, and with a deadline of its own."""
        now = time.monotonic()
        patient = query._replace(deadline=now + REFRESH_SECONDS, priority=Priority.LOW)
        return self._compute(patient, live, _Progress(), now)

    async def _compute(self, query: RecallQuery, live: LiveBundle, progress: _Progress, asked: float) -> RecallAnswer:
        progress.computed = True
        started = time.monotonic()
        self._tracer.span("cache", asked, started, result="miss" if query.cache_mode is CacheMode.USE else "bypass")
        live.runner.gate.check(_demand(query, query.beam_width, live))  # before the prompt is made, for nothing
        prompt, num_unknown = await look_up(len(query.history or ()), _prompt, query, live)
        ended = time.monotonic()
        self._observer.stage("prompt", ended - started)
        self._tracer.span("prompt", started, ended, tokens=len(prompt))
        narrowing = await self._narrow(query, live) if is_narrowed(query) else None
        if narrowing is not None and not narrowing.num_left:
            nothing = no_beams(narrowing.constraint.num_steps, with_ranks=query.include_steps)
            return to_answer(query, live, narrowing, nothing, num_unknown)
        result = await self._search(query, live, narrowing, prompt, progress)
        started = time.monotonic()
        answer = to_answer(query, live, narrowing, result, num_unknown)
        ended = time.monotonic()
        self._observer.stage("map", ended - started)
        self._tracer.span("map", started, ended, items=len(answer.item_ids))
        return answer

    async def _narrow(self, query: RecallQuery, live: LiveBundle) -> Narrowing:
        started = time.monotonic()
        narrowing = await narrow(query, live.bundle.catalog, live.bundle.constraint, live.filters)
        ended = time.monotonic()
        self._observer.stage("filter", ended - started)
        self._tracer.span("filter", started, ended, items=narrowing.num_left)
        return narrowing

    async def _search(
        self,
        query: RecallQuery,
        live: LiveBundle,
        narrowing: Narrowing | None,
        prompt: NDArray[np.int64],
        progress: _Progress,
    ) -> BeamResult:
        result = await live.runner.search(
            BeamRequest(
                prompt=prompt,
                beam_width=query.beam_width,
                constraint=live.bundle.constraint if narrowing is None else narrowing.constraint,
                score_space=live.info.score_space,
                num_results=query.num_items,  # always enough, since every live leaf holds an item
                search_mode=query.search_mode,
                row_budget=live.bundle.file.search.proven_row_budget,
                deadline=query.deadline,
                with_ranks=query.include_steps,
                priority=query.priority,
            ),
            progress.set,
        )
        num_cached = result.cached_prompt_tokens
        self._observer.prefix_tokens(hit=num_cached, miss=len(prompt) - num_cached)
        self._observer.rows_skipped("decode", result.rows_skipped)
        for stage in ("queue", "prefill", "decode"):
            self._observer.stage(stage, getattr(result, f"{stage}_seconds"))
        if result.select_seconds is not None:
            self._observer.stage("select", result.select_seconds)
        trace_search(self._tracer, result)
        return result

    def _report_answer(self, scene: str, answer: RecallAnswer, seconds: float) -> None:
        outcome = "ok" if answer.served_from is ServedFrom.ENGINE else "cached"
        if answer.short_reason is not None:
            outcome = "short"
            self._observer.short(answer.short_reason.value)
        self._observer.answered(
            scene,
            outcome,
            seconds,
            items=len(answer.item_ids),
            proven=answer.proven_count,
            beam_width=answer.beam_width,
            unknown_history=answer.unknown_history_items,
        )
        if answer.unknown_excluded_items:
            self._observer.unknown_excluded(answer.unknown_excluded_items)

    def _report_failure(
        self, scene: str, error: BaseException, seconds: float, query: RecallQuery, progress: _Progress
    ) -> None:
        self._observer.failed(scene, seconds)
        out_of_time = query.deadline is not None and query.deadline <= time.monotonic()
        if isinstance(error, DeadlineExpired):
            self._observer.deadline_expired(error.stage)
        elif isinstance(error, asyncio.CancelledError) and out_of_time:
            self._observer.deadline_expired(progress.stage)  # gRPC noticed first and cancelled the call
        elif isinstance(error, Overloaded):
            self._observer.rejected(error.limit)
        elif isinstance(error, NotReady):
            self._observer.rejected("not_ready")
        elif isinstance(error, InvalidRequest | HistoryEmpty):
            self._observer.rejected("invalid")


def _sizes(query: RecallQuery, info: BundleInfo) -> tuple[int, int]:
    """How many items, and how wide a beam: as asked, or the default. Raises InvalidRequest for too much."""
    num_tokens = len(query.prompt or ())
    if too_large := size_violations(
        info, num_items=query.num_items, beam_width=query.beam_width, num_tokens=num_tokens
    ):
        raise InvalidRequest(too_large)
    num_items = query.num_items or info.default_num_items
    proven = query.search_mode is SearchMode.PROVEN
    default_width = min(num_items, info.max_beam_width) if proven else info.default_beam_width
    return num_items, query.beam_width or default_width


def _demand(query: RecallQuery, beam_width: int, live: LiveBundle) -> Demand:
    num_items = min(len(query.history or ()), live.info.max_history)
    return Demand(
        prompt_len=live.bundle.template.length(num_items) if query.prompt is None else len(query.prompt),
        beam_width=beam_width,
        path_len=live.bundle.constraint.num_steps,
        priority=query.priority,
        deadline=query.deadline,
    )


def _prompt(query: RecallQuery, live: LiveBundle) -> tuple[NDArray[np.int64], int]:
    """The query's prompt, int64 [prompt_len], and how many of its history items are unknown."""
    if query.prompt is not None:
        return _checked_tokens(query.prompt, live.bundle.model.config.vocab_size), 0
    history = query.history or ()
    prompt, num_unknown = live.bundle.history_prompt(history)
    if num_unknown == len(history) and live.bundle.file.prompt.empty_history == "refuse":
        raise HistoryEmpty(
            f"none of the {len(history)} history items is in catalogue {live.info.catalog_version}, and bundle "
            f"{live.info.name} does not serve an empty history"
        )
    return prompt, num_unknown


def _checked_tokens(token_ids: tuple[int, ...], vocab_size: int) -> NDArray[np.int64]:
    prompt = np.array(token_ids, np.int64)
    beyond = np.flatnonzero((prompt < 0) | (prompt >= vocab_size))
    if len(beyond):
        raise InvalidRequest(
            [
                Violation(f"prompt.token_ids[{index}]", f"{prompt[index]}; token ids are 0 to {vocab_size - 1}")
                for index in beyond[:100]
            ]
        )
    return prompt
