"""What filters leave of a catalogue: worked out once, kept by bytes, given up when nobody waits."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from item_catalog.catalog import Catalog
from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn
from item_catalog.filtering.live_sets import LiveSet, live_set
from recall_service.engine.constraint import TrieConstraint
from recall_service.errors import InvalidRequest, Overloaded
from recall_service.serving import filter_cache
from recall_service.serving.filter_cache import FilterCache, Narrowed
from tests.rpc.fake_backend import until
from tests.serving.bundles import LAYOUT, small_catalog
from tests.serving.served import RecordingObserver

SHOES = Filter((IsIn("category", ("shoes",)),))
BOOTS = Filter((IsIn("category", ("boots",)),))
CHEAP = Filter((InRange("price", at_most=30),))
IN_STOCK = Filter((IsIn("in_stock", (True,)),))
PRICES = [Filter((InRange("price", at_most=bound),)) for bound in range(30, 40)]
ENTRY_BYTES = live_set(small_catalog(), SHOES).nbytes + filter_cache._ENTRY_BYTES


class Worker:
    """Stands in for the look-up in the catalogue: counts, and may be made to wait or fail."""

    def __init__(self) -> None:
        self.asked: list[Filter] = []
        self.threads: set[threading.Thread] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.held: Filter | None = None  # the one that waits for the gate; None: all
        self.error: Exception | None = None

    def __call__(self, catalog: Catalog, wanted: Filter) -> LiveSet:
        self.asked.append(wanted)
        self.threads.add(threading.current_thread())
        if self.held in (None, wanted):
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
    assert 2 * ENTRY_BYTES < cache.num_bytes < 2 * ENTRY_BYTES + 100  # the rest is the word "shoes"
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
    """In the order of the list, the first first; past the room there is, it ends."""
    cache = make_cache(observer, entries=2.5)
    unknown = Filter((IsIn("size", ("xl",)),))
    await cache.warm([CHEAP, unknown, SHOES, BOOTS, IN_STOCK])
    assert worker.asked == [CHEAP, SHOES, BOOTS]
    assert cache.recent() == [CHEAP, SHOES]


async def test_what_is_asked_for_meanwhile_comes_before_what_was_warmed(
    worker: Worker, observer: RecordingObserver
) -> None:
    cache = make_cache(observer)
    worker.gate.clear()
    warming = asyncio.create_task(cache.warm([SHOES, CHEAP, BOOTS]))
    await until(lambda: worker.asked == [SHOES])
    asking = asyncio.create_task(cache.resolve(IN_STOCK))
    await until(lambda: worker.asked == [SHOES, IN_STOCK])
    worker.gate.set()
    await asyncio.gather(warming, asking)
    assert cache.recent() == [IN_STOCK, SHOES, CHEAP, BOOTS]
    await cache.resolve(BOOTS)
    assert cache.recent() == [BOOTS, IN_STOCK, SHOES, CHEAP]


async def test_a_warm_up_that_is_cancelled_goes_on_in_the_next_cache(
    worker: Worker, observer: RecordingObserver
) -> None:
    """As often as updates come faster than filters can be worked out."""
    before = [SHOES, CHEAP, BOOTS, IN_STOCK]
    worker.gate.clear()
    worker.held = BOOTS
    for _ in range(3):
        worker.asked.clear()
        cache = make_cache(observer)
        warming = asyncio.create_task(cache.warm(before))
        await until(lambda: BOOTS in worker.asked)
        await cache.resolve(SHOES)
        warming.cancel()
        await asyncio.wait([warming])
        assert worker.asked == [SHOES, CHEAP, BOOTS]
        before = cache.recent()
        assert before == [SHOES, CHEAP, BOOTS, IN_STOCK]
    worker.gate.set()
    await cache.warm(before)
    assert cache.recent() == before


async def let_go(in_use: list[Narrowed]) -> None:
    """Of the last, once the thread that made it has let go of it too."""
    live = weakref.ref(in_use.pop().live)
    await until(lambda: live() is None)


async def test_what_is_in_use_and_not_kept_is_bounded(observer: RecordingObserver) -> None:
    """By as much again as may be kept; what is kept, or in use and asked for again, is still to be had."""
    cache = make_cache(observer, entries=0)
    in_use = [await cache.resolve(wanted) for wanted in PRICES[:4]]
    with pytest.raises(Overloaded, match="filter: it is new, and 4 others that are not kept are in use") as caught:
        await cache.resolve(PRICES[4])
    assert (caught.value.limit, caught.value.retry_after_seconds) == ("memory", 1.0)
    await let_go(in_use)
    assert (await cache.resolve(PRICES[4])).live.num_items > 0


async def test_what_is_kept_does_not_count_as_in_use_until_it_is_let_go(observer: RecordingObserver) -> None:
    cache = make_cache(observer, entries=2.5)
    in_use = [await cache.resolve(wanted) for wanted in PRICES[:6]]
    assert cache.recent() == [PRICES[5], PRICES[4]]
    cache._max_in_use = 4  # what is kept of so small a catalogue is objects, and those in use count by their flags
    with pytest.raises(Overloaded, match="are in use"):
        await cache.resolve(PRICES[6])
    for kept in (PRICES[5], PRICES[4]):
        assert await cache.resolve(kept) is in_use.pop()
    await let_go(in_use)
    await cache.resolve(PRICES[6])


async def test_what_is_under_way_counts_as_in_use(worker: Worker, observer: RecordingObserver) -> None:
    cache = make_cache(observer, entries=0)
    worker.gate.clear()
    waiting = [asyncio.create_task(cache.resolve(wanted)) for wanted in PRICES[:4]]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="are in use"):
        await cache.resolve(PRICES[4])
    joining = asyncio.create_task(cache.resolve(PRICES[0]))
    worker.gate.set()
    await asyncio.gather(*waiting, joining)


async def test_long_lists_count_by_their_length(observer: RecordingObserver) -> None:
    cache = make_cache(observer)
    await cache.resolve(Filter((NotIn("category", tuple(f"{number:0200}" for number in range(100))),)))
    assert ENTRY_BYTES + 20_000 < cache.num_bytes < ENTRY_BYTES + 30_000


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
