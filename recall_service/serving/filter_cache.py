"""What filters leave of one catalogue: worked out once, beside the event loop, and kept while there is room.

It belongs to a live bundle and goes with it, so that nothing here can be of another catalogue's making.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from item_catalog.catalog import Catalog
from item_catalog.filters import Filter
from item_catalog.live_sets import LiveSet, live_set
from recall_service.engine.constraint import TrieConstraint
from recall_service.errors import InvalidRequest, Overloaded
from recall_service.serving.filter_check import filter_violations
from recall_service.serving.hooks import Observer

# Each goes through whole columns of the catalogue, so that memory's pace, not the processors', soon bounds them all.
_MAX_AT_ONCE = 2
_MAX_UNDER_WAY = 64  # past it, whoever asks for yet another is told to come back
_RETRY_SECONDS = 1.0


class Narrowed(NamedTuple):
    """A catalogue as a filter leaves it: what a search sees of it, and which items and nodes that is."""

    constraint: TrieConstraint
    live: LiveSet


class _Kept(NamedTuple):
    wanted: Filter
    narrowed: Narrowed


@dataclass(slots=True, eq=False)
class _Computation:
    """One filter being worked out. end: what comes of it, for the loop; job: a thread's part, to be called off."""

    end: "asyncio.Future[Narrowed]"
    job: "Future[None]"
    num_waiting: int = 0


class FilterCache:
    """Narrowed catalogues by filter, the least recently asked for out first; for use by one event loop.

    max_bytes: how much of live sets is kept. One that alone is larger is used, and not kept.
    """

    def __init__(self, catalog: Catalog, constraint: TrieConstraint, *, max_bytes: int, observer: Observer) -> None:
        self._catalog = catalog
        self._constraint = constraint
        self._max_bytes = max_bytes
        self._observer = observer
        self._attributes = {name: column.kind for name, column in catalog.attributes.items()}
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._num_bytes = 0
        self._under_way: dict[bytes, _Computation] = {}
        # Its threads end when nobody holds it any more.
        self._threads = ThreadPoolExecutor(_MAX_AT_ONCE, thread_name_prefix="filter")

    @property
    def num_bytes(self) -> int:
        """How much is kept, by its live sets."""
        return self._num_bytes

    async def resolve(self, wanted: Filter) -> Narrowed:
        """The catalogue as `wanted` leaves it. Equal filters asked for at once are worked out once.

        When cancelled, nobody else is disturbed; work that nobody waits for any more and has not begun is called off.
        Raises InvalidRequest for a filter that does not fit the catalogue, and Overloaded when too many new ones wait.
        """
        started = time.perf_counter()
        key = wanted.digest()
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self._observer.filter_resolved("hit", time.perf_counter() - started)
            return kept.narrowed
        computation = self._under_way.get(key) or self._begin(key, wanted)
        narrowed = await self._end_of(key, computation)
        self._observer.filter_resolved("computed", time.perf_counter() - started)
        return narrowed

    def recent(self) -> list[Filter]:
        """The filters that are kept, the most recently asked for first."""
        return [kept.wanted for kept in reversed(self._kept.values())]

    async def warm(self, filters: Sequence[Filter]) -> None:
        """Work out what another cache's `recent` gave, one by one, but for what does not fit this catalogue."""
        for wanted in reversed(filters):
            with suppress(InvalidRequest):
                await self.resolve(wanted)

    def _begin(self, key: bytes, wanted: Filter) -> _Computation:
        if violations := filter_violations(wanted, self._attributes):
            raise InvalidRequest(violations)
        if len(self._under_way) >= _MAX_UNDER_WAY:
            raise Overloaded(
                f"filter: {len(self._under_way)} others that are new wait to be looked up; come back later",
                retry_after_seconds=_RETRY_SECONDS,
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
        del self._under_way[key]
        if isinstance(outcome, Exception):
            end.set_exception(outcome)
            end.exception()  # seen, even if nobody waits any more
        else:
            end.set_result(outcome)
            self._keep(key, _Kept(wanted, outcome))

    def _keep(self, key: bytes, kept: _Kept) -> None:
        if kept.narrowed.live.nbytes > self._max_bytes:
            return
        self._kept[key] = kept
        self._num_bytes += kept.narrowed.live.nbytes
        while self._num_bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._num_bytes -= oldest.narrowed.live.nbytes
