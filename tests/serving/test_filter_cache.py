"""What filters leave of a catalogue: worked out once, kept by bytes, given up when nobody waits."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from item_catalog.catalog import Catalog
from item_catalog.filters import Filter, InRange, IsIn
from item_catalog.live_sets import LiveSet, live_set
from recall_service.engine.constraint import TrieConstraint
from recall_service.errors import InvalidRequest, Overloaded
from recall_service.serving import filter_cache
from recall_service.serving.filter_cache import FilterCache
from tests.rpc.fake_backend import until
from tests.serving.bundles import LAYOUT, small_catalog
from tests.serving.served import RecordingObserver

SHOES = Filter((IsIn("category", ("shoes",)),))
BOOTS = Filter((IsIn("category", ("boots",)),))
CHEAP = Filter((InRange("price", at_most=30),))
ENTRY_BYTES = live_set(small_catalog(), SHOES).nbytes


class Worker:
    """Stands in for the look-up in the catalogue: counts, and may be made to wait or fail."""

    def __init__(self) -> None:
        self.asked: list[Filter] = []
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def __call__(self, catalog: Catalog, wanted: Filter) -> LiveSet:
        self.asked.append(wanted)
        self.threads.add(threading.current_thread())
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return live_set(catalog, wanted)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    worker = Worker()
    monkeypatch.setattr(filter_cache, "live_set", worker)
    yield worker
    worker.gate.set()


@pytest.fixture
def observer() -> RecordingObserver:
    return RecordingObserver()


def make_cache(observer: RecordingObserver, entries: float = 10) -> FilterCache:
    tokens = [np.arange(size, dtype=np.int64) for size in LAYOUT.codebook_sizes]
    catalog = small_catalog()
    return FilterCache(
        catalog, TrieConstraint(catalog.trie, tokens), max_bytes=int(entries * ENTRY_BYTES), observer=observer
    )


def results(observer: RecordingObserver) -> list[str]:
    return [call[1] for call in observer.of("filter_resolved")]


async def test_a_filter_is_worked_out_once_and_beside_the_loop(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    first = await cache.resolve(SHOES)
    again = await cache.resolve(Filter((IsIn("category", ("shoes", "shoes")),)))  # another way to put it
    assert again is first
    assert worker.asked == [SHOES]
    assert threading.current_thread() not in worker.threads
    assert results(observer) == ["computed", "hit"]
    np.testing.assert_array_equal(first.live.items, live_set(small_catalog(), SHOES).items)
    for level, live in enumerate(first.live.nodes):
        np.testing.assert_array_equal(first.constraint.level_arrays(level).live, live)


async def test_values_of_different_types_are_different_filters(observer: RecordingObserver) -> None:
    """Python holds these filters equal, and so would a dictionary of them."""
    cache = make_cache(observer)
    assert Filter((IsIn("in_stock", (1,)),)) == Filter((IsIn("in_stock", (True,)),))
    assert (await cache.resolve(Filter((IsIn("in_stock", (True,)),)))).live.num_items == 33
    with pytest.raises(InvalidRequest):
        await cache.resolve(Filter((IsIn("in_stock", (1,)),)))


async def test_equal_filters_at_once_are_worked_out_once(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    worker.gate.clear()
    waiting = [asyncio.create_task(cache.resolve(SHOES)) for _ in range(5)]
    await until(lambda: len(worker.asked) == 1)
    worker.gate.set()
    assert len({id(narrowed) for narrowed in await asyncio.gather(*waiting)}) == 1
    assert worker.asked == [SHOES]
    assert results(observer) == ["computed"] * 5


async def test_the_least_recently_asked_for_goes_first(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer, entries=2.5)
    for wanted in (SHOES, BOOTS, SHOES, CHEAP):
        await cache.resolve(wanted)
    assert cache.recent() == [CHEAP, SHOES]
    assert cache.num_bytes == sum(live_set(small_catalog(), wanted).nbytes for wanted in (CHEAP, SHOES))
    await cache.resolve(BOOTS)
    assert worker.asked == [SHOES, BOOTS, CHEAP, BOOTS]
    assert cache.recent() == [BOOTS, CHEAP]


async def test_what_alone_is_too_large_is_used_and_not_kept(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer, entries=0.9)
    for _ in range(2):
        assert (await cache.resolve(SHOES)).live.num_items == 13
    assert worker.asked == [SHOES, SHOES]
    assert (cache.recent(), cache.num_bytes) == ([], 0)


async def test_a_failure_reaches_all_who_wait_and_is_not_kept(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    worker.error = MemoryError("none left")
    failed = await asyncio.gather(cache.resolve(SHOES), cache.resolve(SHOES), return_exceptions=True)
    assert failed == [worker.error, worker.error]
    worker.error = None
    assert (await cache.resolve(SHOES)).live.num_items == 13


async def test_one_who_leaves_disturbs_nobody(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    worker.gate.clear()
    leaving, staying = (asyncio.create_task(cache.resolve(SHOES)) for _ in range(2))
    await until(lambda: len(worker.asked) == 1)
    leaving.cancel()
    await asyncio.wait([leaving])
    worker.gate.set()
    assert (await staying).live.num_items == 13
    assert leaving.cancelled()


async def test_what_nobody_waits_for_is_kept_if_it_was_begun(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    worker.gate.clear()
    leaving = asyncio.create_task(cache.resolve(SHOES))
    await until(lambda: len(worker.asked) == 1)
    leaving.cancel()
    await asyncio.wait([leaving])
    worker.gate.set()
    await until(lambda: cache.recent() == [SHOES])
    await cache.resolve(SHOES)
    assert worker.asked == [SHOES]


async def test_what_nobody_waits_for_is_called_off_if_not(worker: Worker, observer: RecordingObserver) -> None:
    """Callers who come and go pile up no work; whoever comes back begins anew."""
    cache = make_cache(observer)
    worker.gate.clear()
    running = [asyncio.create_task(cache.resolve(wanted)) for wanted in (SHOES, BOOTS)]
    await until(lambda: len(worker.asked) == 2)
    for _ in range(2):
        leaving = asyncio.create_task(cache.resolve(CHEAP))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
    returning = asyncio.create_task(cache.resolve(CHEAP))
    await asyncio.sleep(0)
    worker.gate.set()
    await asyncio.gather(*running)
    assert (await returning).live.num_items == live_set(small_catalog(), CHEAP).num_items
    assert worker.asked == [SHOES, BOOTS, CHEAP]


async def test_too_many_new_filters_at_once_are_refused(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    worker.gate.clear()
    filters = [Filter((InRange("price", at_most=bound),)) for bound in range(65)]
    waiting = [asyncio.create_task(cache.resolve(wanted)) for wanted in filters[:64]]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match=r"filter: 64 others that are new wait") as caught:
        await cache.resolve(filters[64])
    assert caught.value.limit == "queue_full"
    worker.gate.set()
    await asyncio.gather(*waiting)
    assert (await cache.resolve(filters[64])).live.num_items > 0


async def test_a_filter_that_does_not_fit_is_no_work(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    with pytest.raises(InvalidRequest, match=r"filter.predicates\[0\].attribute: 'size' is unknown"):
        await cache.resolve(Filter((IsIn("size", ("xl",)),)))
    assert worker.asked == []


async def test_a_new_catalogues_cache_is_warmed_with_what_fits(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer, entries=2.5)
    unknown = Filter((IsIn("size", ("xl",)),))
    await cache.warm([CHEAP, unknown, SHOES, BOOTS])
    assert worker.asked == [BOOTS, SHOES, CHEAP]
    assert cache.recent() == [CHEAP, SHOES]


async def test_it_goes_with_its_bundle(worker: Worker, observer: RecordingObserver) -> None:
    """Its threads end too, and nothing holds what was kept, not even until the garbage is collected."""
    cache = make_cache(observer)
    kept = weakref.ref((await cache.resolve(SHOES)).constraint)
    (thread,) = worker.threads
    gc.disable()
    try:
        del cache
        await until(lambda: kept() is None and not thread.is_alive())
    finally:
        gc.enable()
