"""The cache tier in this process: complete answers, least recently used out first, bounded in bytes and in age.

Knows no keys but as bytes, and no other tier. Answers are shared between callers, who must not write into them.
"""

import sys
import time
from dataclasses import replace

from cachetools import TLRUCache

from recall_service.serving.cache.time_to_live import KeptAnswer, TimeToLive
from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallAnswer, ServedFrom, Timings

# The key, the answer object, its array headers and the cache's own records: 960 to 2,060 bytes by tracemalloc, most of
# them where the arrays are views of what Redis sent.
_ENTRY_OVERHEAD_BYTES = 2304


class LocalTier:
    """At most `max_bytes` of answers; 0 keeps none. For use by one event loop."""

    def __init__(self, *, max_bytes: int, time_to_live: TimeToLive, observer: Observer) -> None:
        self._time_to_live = time_to_live
        self._observer = observer
        self._answers: TLRUCache[bytes, KeptAnswer, float] = TLRUCache(
            max_bytes,
            lambda _key, kept, _now: kept.fresh_until + time_to_live.stale_seconds,
            time.monotonic,
            lambda kept: resident_bytes(kept.answer),
        )

    def get_fresh(self, key: bytes) -> RecallAnswer | None:
        """The answer under `key` if it is fresh, counted as by `get`; None goes uncounted, for `get` is asked next."""
        started = time.perf_counter()
        try:
            kept = self._answers[key]
        except KeyError:
            return None
        if kept.is_stale:
            return None
        self._observer.cache_operation("local", "get", time.perf_counter() - started)
        self._observer.cache_request("local", "hit")
        return kept.answer

    def get(self, key: bytes) -> KeptAnswer | None:
        """The answer under `key`, served from this tier, or None."""
        started = time.perf_counter()
        try:
            kept = self._answers[key]
        except KeyError:
            kept = None
        self._observer.cache_operation("local", "get", time.perf_counter() - started)
        self._observer.cache_request("local", "miss" if kept is None else "stale" if kept.is_stale else "hit")
        return kept

    def put(self, key: bytes, answer: RecallAnswer, fresh_until: float | None = None) -> None:
        """Keep `answer`, unless it alone is over the bound.

        fresh_until: seconds of `time.monotonic()`, where another tier has said so; None: from now on for a life.
        """
        started = time.perf_counter()
        kept = replace(answer, served_from=ServedFrom.LOCAL_CACHE, rows_forwarded=0, rows_skipped=0, timings=Timings())
        if fresh_until is None:
            fresh_until = time.monotonic() + self._time_to_live.draw()
        if resident_bytes(kept) <= self._answers.maxsize:
            self._answers[key] = KeptAnswer(kept, fresh_until)
        self._observer.cache_operation("local", "put", time.perf_counter() - started)


def resident_bytes(answer: RecallAnswer) -> int:
    """About how much memory an answer holds on to."""
    arrays = (answer.scores, answer.sids, answer.step_log_probs, answer.step_ranks)
    array_bytes = sum(array.nbytes for array in arrays if array is not None)
    item_id_bytes = sys.getsizeof(answer.item_ids) + sum(map(sys.getsizeof, answer.item_ids))
    return array_bytes + item_id_bytes + len(answer.items_wire) + _ENTRY_OVERHEAD_BYTES
