"""The cache tier in this process: complete answers, least recently used out first, bounded in bytes and in age.

Knows no keys but as bytes, and no other tier. Answers are shared between callers, who must not write into them.
"""

import sys
import time
from dataclasses import replace

from cachetools import TLRUCache

from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallAnswer, ServedFrom, Timings
from recall_service.serving.time_to_live import TimeToLive

# The key, the answer object, its array headers and the cache's own records: 800 to 1,210 bytes by tracemalloc.
_ENTRY_OVERHEAD_BYTES = 1280


class LocalTier:
    """At most `max_bytes` of answers; 0 keeps none. For use by one event loop."""

    def __init__(self, *, max_bytes: int, time_to_live: TimeToLive, observer: Observer) -> None:
        self._observer = observer
        self._answers: TLRUCache[bytes, RecallAnswer, float] = TLRUCache(
            max_bytes, lambda _key, _answer, now: now + time_to_live.draw(), time.monotonic, resident_bytes
        )

    def get(self, key: bytes) -> RecallAnswer | None:
        """The answer under `key`, served from this tier, or None."""
        started = time.perf_counter()
        answer = self._answers.get(key)
        self._observer.cache_operation("local", "get", time.perf_counter() - started)
        self._observer.cache_request("local", "miss" if answer is None else "hit")
        return answer

    def put(self, key: bytes, answer: RecallAnswer) -> None:
        """Keep `answer`, unless it alone is over the bound."""
        started = time.perf_counter()
        kept = replace(answer, served_from=ServedFrom.LOCAL_CACHE, rows_forwarded=0, rows_skipped=0, timings=Timings())
        if resident_bytes(kept) <= self._answers.maxsize:
            self._answers[key] = kept
        self._observer.cache_operation("local", "put", time.perf_counter() - started)


def resident_bytes(answer: RecallAnswer) -> int:
    """About how much memory an answer holds on to."""
    arrays = (answer.scores, answer.sids, answer.step_log_probs, answer.step_ranks)
    array_bytes = sum(array.nbytes for array in arrays if array is not None)
    return (
        array_bytes + sys.getsizeof(answer.item_ids) + sum(map(sys.getsizeof, answer.item_ids)) + _ENTRY_OVERHEAD_BYTES
    )
