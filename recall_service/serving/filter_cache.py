"""What filters leave of one catalogue: worked out once, beside the event loop, and kept while there is room.

It belongs to a live bundle and goes with it, so that nothing here can be of another catalogue's making. What is not
kept can still be in use, by whoever asked for it: that is bounded too.
"""

import asyncio
import sys
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from item_catalog.catalog import Catalog
from item_catalog.filtering.filters import Filter, InRange
from item_catalog.filtering.live_sets import LiveSet, live_set
from recall_service.engine.constraint import TrieConstraint
from recall_service.errors import InvalidRequest, Overloaded
from recall_service.serving.filter_check import filter_violations
from recall_service.serving.hooks import Observer

# Each goes through whole columns of the catalogue, so that memory's pace, not the processors', soon bounds them all.
_MAX_AT_ONCE = 2
_MAX_UNDER_WAY = 64  # past it, whoever asks for yet another is told to come back
_MIN_IN_USE = 4  # live sets that may be in use or under way beside those kept, however little is kept
_ENTRY_BYTES = 4096  # of one that is kept: what arrays, tensors and names take beside their content
_RETRY_SECONDS = 1.0


class Narrowed(NamedTuple):
    """A catalogue as a filter leaves it: what a search sees of it, and which items and nodes that is."""

    constraint: TrieConstraint
    live: LiveSet


class _Kept(NamedTuple):
    wanted: Filter
    narrowed: Narrowed
    num_bytes: int


@dataclass(slots=True, eq=False)
class _Computation:
    """One filter being worked out. end: what comes of it, for the loop; job: a thread's part, to be called off.

    is_asked_for: by a question, and not only to warm up.
    """

    end: "asyncio.Future[Narrowed]"
    job: "Future[None]"
    num_waiting: int = 0
    is_asked_for: bool = False


class FilterCache:
    """Narrowed catalogues by filter, the least recently asked for out first; for use by one event loop.

    max_bytes: how much is kept, by live sets and their filters. What alone is larger is used, and not kept. Live sets
        of as many bytes again, and four in any case, may be under way, or in use though no longer kept.
    """

    def __init__(self, catalog: Catalog, constraint: TrieConstraint, *, max_bytes: int, observer: Observer) -> None:
        self._catalog = catalog
        self._constraint = constraint
        self._max_bytes = max_bytes
        self._observer = observer
        self._attributes = {name: column.kind for name, column in catalog.attributes.items()}
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._num_bytes = 0
        num_flags = catalog.num_items + sum(map(len, catalog.trie.codes))  # a byte each
        self._max_in_use = max(_MIN_IN_USE, max_bytes // num_flags)
        self._let_go: list[weakref.ref[LiveSet]] = []  # not kept, or not any more
        self._to_warm: deque[Filter] = deque()
        self._under_way: dict[bytes, _Computation] = {}
        # Its threads end when nobody holds it any more.
        self._threads = ThreadPoolExecutor(_MAX_AT_ONCE, thread_name_prefix="filter")

    @property
    def num_bytes(self) -> int:
        """How much is kept, by its live sets and filters."""
        return self._num_bytes

    async def resolve(self, wanted: Filter) -> Narrowed:
        """The catalogue as `wanted` leaves it. Equal filters asked for at once are worked out once.

        When cancelled, nobody else is disturbed; work that nobody waits for any more and has not begun is called off.
        Raises InvalidRequest for a filter that does not fit the catalogue, and Overloaded when too many new ones wait
        or too much that is not kept is in use.
        """
        started = time.perf_counter()
        key = wanted.digest()
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self._observer.filter_resolved("hit", time.perf_counter() - started)
            return kept.narrowed
        return await self._work_out(key, wanted, started, is_asked_for=True)

    def recent(self) -> list[Filter]:
        """The filters that are kept, the most recently asked for first, and then those that `warm` has not come to."""
        kept = [kept.wanted for kept in reversed(self._kept.values())]
        return list(dict.fromkeys([*kept, *self._to_warm]))

    async def warm(self, filters: Sequence[Filter]) -> None:
        """Work out what another cache's `recent` gave, one by one in that order, while there is room.

        They come behind what was asked for meanwhile. What does not fit this catalogue is left out. When cancelled, or
        refused with Overloaded, those that are left stay in `recent`, for the next cache to carry on with.
        """
        self._to_warm = deque(filters)
        while self._to_warm:
            wanted = self._to_warm[0]
            key = wanted.digest()
            with suppress(InvalidRequest):
                if key not in self._kept:
                    await self._work_out(key, wanted, time.perf_counter(), is_asked_for=False)
                if key not in self._kept:
                    self._to_warm.clear()  # no room for it, nor for those behind it
                    return
            self._to_warm.popleft()

    async def _work_out(self, key: bytes, wanted: Filter, started: float, *, is_asked_for: bool) -> Narrowed:
        computation = self._under_way.get(key) or self._begin(key, wanted)
        computation.is_asked_for |= is_asked_for
        narrowed = await self._end_of(key, computation)
        self._observer.filter_resolved("computed", time.perf_counter() - started)
        return narrowed

    def _begin(self, key: bytes, wanted: Filter) -> _Computation:
        if violations := filter_violations(wanted, self._attributes):
            raise InvalidRequest(violations)
        if len(self._under_way) >= _MAX_UNDER_WAY:
            raise Overloaded(
                f"filter: {len(self._under_way)} others that are new wait to be looked up; come back later",
                retry_after_seconds=_RETRY_SECONDS,
            )
        self._let_go = [live for live in self._let_go if live() is not None]
        if len(self._let_go) + len(self._under_way) >= self._max_in_use:
            raise Overloaded(
                f"filter: it is new, and {self._max_in_use:,} others that are not kept are in use; come back later",
                retry_after_seconds=_RETRY_SECONDS,
                limit="memory",
            )
        end = asyncio.get_running_loop().create_future()
        job = self._threads.submit(self._work, key, wanted, end)
        computation = self._under_way[key] = _Computation(end, job)
        return computation

    async def _end_of(self, key: bytes, computation: _Computation) -> Narrowed:
        computation.num_waiting += 1
        try:
            await asyncio.wait([computation.end])  # unlike awaiting it, a cancelled wait leaves it alone
        finally:
            computation.num_waiting -= 1
            if not computation.num_waiting and computation.job.cancel():
                del self._under_way[key]  # at once: whoever asks next must not join it
        return computation.end.result()

    def _work(self, key: bytes, wanted: Filter, end: "asyncio.Future[Narrowed]") -> None:
        """In a thread. The job's own result is nothing, lest what was found outlive all who know it."""
        try:
            live = live_set(self._catalog, wanted)
            outcome: Narrowed | Exception = Narrowed(self._constraint.keeping(live.nodes), live)
        except Exception as error:  # noqa: BLE001  whoever waits for it raises it
            outcome = error
        end.get_loop().call_soon_threadsafe(self._finish, key, wanted, end, outcome)

    def _finish(
        self, key: bytes, wanted: Filter, end: "asyncio.Future[Narrowed]", outcome: Narrowed | Exception
    ) -> None:
        computation = self._under_way.pop(key)
        if isinstance(outcome, Exception):
            end.set_exception(outcome)
            end.exception()  # seen, even if nobody waits any more
        else:
            end.set_result(outcome)
            kept = _Kept(wanted, outcome, outcome.live.nbytes + _ENTRY_BYTES + _num_value_bytes(wanted))
            self._keep(key, kept, is_asked_for=computation.is_asked_for)

    def _keep(self, key: bytes, kept: _Kept, *, is_asked_for: bool) -> None:
        if kept.num_bytes > self._max_bytes:
            self._let_go.append(weakref.ref(kept.narrowed.live))
            return
        self._kept[key] = kept
        self._kept.move_to_end(key, last=is_asked_for)
        self._num_bytes += kept.num_bytes
        while self._num_bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._num_bytes -= oldest.num_bytes
            self._let_go.append(weakref.ref(oldest.narrowed.live))


def _num_value_bytes(wanted: Filter) -> int:
    """What the lists of a filter take, about; each may be as long as a request."""
    lists = (predicate.values for predicate in wanted.predicates if not isinstance(predicate, InRange))
    return sum(map(sys.getsizeof, chain.from_iterable(lists)))
