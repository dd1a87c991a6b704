"""Questions in the order they arrived, out of a source that is only roughly so: a log is written as calls end."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace

from recall_service.replay.asked import Asked

WINDOW = 8_192  # calls that may end between the arrival and the end of one: four seconds' worth at 2,000 per second


def in_arrival_order(questions: Iterable[Asked], window: int = WINDOW) -> Iterator[Asked]:
    """The same questions, each moved by less than `window` places, their arrivals counted from the first one's.

    At most `window` questions are held. Those with equal arrivals keep their order.
    """
    heap: list[tuple[float, int, Asked]] = []
    first: float | None = None
    for asked in _sorted(questions, heap, window):
        first = asked.arrival_seconds if first is None else first
        yield replace(asked, arrival_seconds=asked.arrival_seconds - first)


def _sorted(questions: Iterable[Asked], heap: list[tuple[float, int, Asked]], window: int) -> Iterator[Asked]:
    for asked in questions:
        heapq.heappush(heap, (asked.arrival_seconds, asked.index, asked))
        if len(heap) >= window:
            yield heapq.heappop(heap)[-1]
    while heap:
        yield heapq.heappop(heap)[-1]
