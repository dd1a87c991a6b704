"""The queue: who waits, and in which order. Knows nothing of what a request needs to be let in.

The order is that of one number, fixed when a request arrives: its arrival plus its priority times the ageing time. So a
request of higher priority goes ahead of one of the next lower, unless that one has waited the ageing time longer: then
waiting has made it its equal, and nobody waits for ever. Equals go in the order in which they came.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from recall_service.engine.request import BeamRequest, Priority

_FEW = 64  # deadlines that are kept for nothing before it is worth clearing them out


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A request in the queue, and since when it waits (seconds of time.monotonic())."""

    request_id: int
    request: BeamRequest
    submitted: float


class WaitingQueue:
    """Requests that wait. Every operation costs the same however many they are, taking out the expired apart.

    ageing_seconds: having waited so much longer counts as one priority more.
    """

    def __init__(self, ageing_seconds: float) -> None:
        self._ageing_seconds = ageing_seconds
        # Within a priority the order is that of arrival, so that three queues in that order are one in ours.
        self._queues: dict[Priority, OrderedDict[int, Waiting]] = {priority: OrderedDict() for priority in Priority}
        self._deadlines: list[tuple[float, int, Priority]] = []  # a heap; of requests long gone as well
        self._oldest: float | None = None  # kept, not looked up when it is asked for: another thread may ask

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def age_seconds(self, now: float) -> float:
        """How long the one that has waited longest has waited at `now`, seconds of `time.monotonic()`; 0 if nobody."""
        oldest = self._oldest
        return 0.0 if oldest is None else now - oldest

    def append(self, waiting: Waiting) -> None:
        """Put a request where its priority and its arrival say; none of its priority came later."""
        request = waiting.request
        self._queues[request.priority][waiting.request_id] = waiting
        if request.deadline is not None:
            heapq.heappush(self._deadlines, (request.deadline, waiting.request_id, request.priority))
        if self._oldest is None:
            self._oldest = waiting.submitted

    @property
    def head(self) -> Waiting | None:
        """Who is next."""
        return min(self._firsts(), key=self._place, default=None)

    def remove(self, request_id: int) -> Waiting | None:
        """Take a request out, if it is there."""
        removed = [queue.pop(request_id) for queue in self._queues.values() if request_id in queue]
        self._forget()
        return removed[0] if removed else None

    def remove_all(self) -> list[Waiting]:
        """Take everybody out."""
        removed = [waiting for queue in self._queues.values() for waiting in queue.values()]
        for queue in self._queues.values():
            queue.clear()
        self._forget()
        return removed

    def remove_expired(self, now: float) -> list[Waiting]:
        """Take out everybody whose deadline has passed; costs what they are, not what the others are."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, request_id, priority = heapq.heappop(self._deadlines)
            waiting = self._queues[priority].pop(request_id, None)
            if waiting is not None:
                expired.append(waiting)
        if expired:
            self._forget()
        return expired

    def _firsts(self) -> Iterator[Waiting]:
        return (next(iter(queue.values())) for queue in self._queues.values() if queue)

    def _place(self, waiting: Waiting) -> tuple[float, int]:
        return waiting.submitted + waiting.request.priority * self._ageing_seconds, waiting.request_id

    def _forget(self) -> None:
        """Somebody has left."""
        self._oldest = min((waiting.submitted for waiting in self._firsts()), default=None)
        if len(self._deadlines) > _FEW + 2 * len(self):
            self._deadlines = [kept for kept in self._deadlines if kept[1] in self._queues[kept[2]]]
            heapq.heapify(self._deadlines)
