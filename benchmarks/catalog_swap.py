"""Catalogues that go live under load, on a real server: calls that fail, answers that mix versions, memory, latency.

Two shops of different items take turns, and every few swaps items of the live one are replaced. Callers ask all the
while, through gRPC, without and with a filter and exclusions, past the cache and through it. Items that come with
updates are first on their SIDs, so that every answer shows which content it is of; it must be that of the version it
names. Latencies are of questions past the cache.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np

from benchmarks.service_load import percentiles
from benchmarks.service_servers import AT_ONCE, Server, all_sids, recall_server
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from recall_service.client.predicates import IsIn, to_filter
from recall_service.stubs.recall.v1 import admin_pb2, recall_pb2
from recall_service.stubs.recall.v1.admin_pb2_grpc import AdminServiceStub
from recall_service.stubs.recall.v1.recall_pb2_grpc import RecallServiceStub
from tests.serving.bundles import LAYOUT
from tests.serving.stores import write_store_bundle

SWAPS, NUM_ITEMS = 200, 100_000
BEFORE_SECONDS = 5.0
_SWAPS_BETWEEN_UPDATES = 5
_NUM_CALLERS, _PAUSE_SECONDS = 4, 0.02
_NUM_QUESTIONS = 60
_LONG_SECONDS = 60.0


class Call(NamedTuple):
    """One question and what became of it. answer: None for a call that failed."""

    past_cache: bool
    seconds: float
    answer: recall_pb2.RecallResponse | None


class Swaps(NamedTuple):
    """seconds: of each. resident_bytes: of the server after each. contents: the items of every version, by version."""

    seconds: list[float]
    resident_bytes: list[int]
    contents: dict[str, frozenset[str]]


class Shop:
    """A published catalogue, and what has become of it on the server. `name` begins all its item ids."""

    def __init__(self, name: str, num_items: int) -> None:
        self.name = name
        self.item_ids = [f"{name}-item-{number:06d}" for number in range(num_items)]
        self.sids = all_sids()
        kinds = ["hat" if number % 3 else "shoe" for number in range(num_items)]
        sids = self.sids[np.arange(num_items) % len(self.sids)]
        self.catalog: Catalog = build_catalog(LAYOUT, sids, self.item_ids, {"kind": kinds})
        self._fresh: list[str] = []
        self._num_batches = 0

    def contents(self) -> frozenset[str]:
        """The ids of all its items now."""
        return frozenset([*self.item_ids, *self._fresh])

    def next_updates(self) -> admin_pb2.ApplyItemUpdatesRequest:
        """A new item on every SID, in front of all others, in the place of those that came this way before."""
        removals, self._num_batches = self._fresh, self._num_batches + 1
        self._fresh = [f"{self.name}-fresh-{self._num_batches:03d}-{row:03d}" for row in range(len(self.sids))]
        hat = {"kind": recall_pb2.Value(text="hat")}
        upserts = [
            admin_pb2.ItemUpsert(item_id=item_id, sid=sid, attributes=hat)
            for item_id, sid in zip(self._fresh, self.sids.tolist(), strict=True)
        ]
        return admin_pb2.ApplyItemUpdatesRequest(upserts=upserts, removals=removals)


def measure_swaps(
    *,
    num_swaps: int = SWAPS,
    num_items: int = NUM_ITEMS,
    before_seconds: float = BEFORE_SECONDS,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """num_swaps: 10 or more. num_items: of each shop. before_seconds: how long the load lasts before the first swap."""
    shops = [Shop(name, num_items) for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "bundle"
        write_store_bundle(directory, *(shop.catalog for shop in shops))
        with recall_server(directory, AT_ONCE) as server:
            return asyncio.run(_measure(server, shops, num_swaps, before_seconds, tell))


async def _measure(
    server: Server, shops: Sequence[Shop], num_swaps: int, before_seconds: float, tell: Callable[[str], None]
) -> dict[str, Any]:
    questions = _questions(shops)
    async with (
        grpc.aio.insecure_channel(server.address) as channel,
        grpc.aio.insecure_channel(server.admin_address) as admin_channel,
    ):
        recall = RecallServiceStub(channel)  # type: ignore[no-untyped-call]
        admin = AdminServiceStub(admin_channel)  # type: ignore[no-untyped-call]
        tell("swap: load before")
        async with _asked(recall, questions) as before:
            await asyncio.sleep(before_seconds)
        tell(f"swap: {num_swaps} times under load")
        async with _asked(recall, questions) as during:
            swaps = await _swap(server, admin, shops, num_swaps)
    return _summary(before, during, swaps)


async def _swap(server: Server, admin: AdminServiceStub, shops: Sequence[Shop], num_swaps: int) -> Swaps:
    live, other = shops
    contents = {shop.catalog.version: shop.contents() for shop in shops}
    seconds, resident_bytes = [], []
    for number in range(num_swaps):
        live, other = other, live
        start = time.perf_counter()
        request = admin_pb2.ActivateCatalogRequest(version=live.catalog.version)
        await admin.ActivateCatalog(request, timeout=_LONG_SECONDS)
        seconds.append(time.perf_counter() - start)
        resident_bytes.append(server.resident_bytes)
        if number % _SWAPS_BETWEEN_UPDATES == 0:
            applied = await admin.ApplyItemUpdates(live.next_updates(), timeout=_LONG_SECONDS)
            contents[applied.catalog.version] = live.contents()
    return Swaps(seconds, resident_bytes, contents)


def _summary(before: Sequence[Call], during: Sequence[Call], swaps: Swaps) -> dict[str, Any]:
    """Memory grows from the second tenth of the swaps to the last: a median of each."""
    answers = [call.answer for call in during if call.answer is not None]
    tenth = len(swaps.seconds) // 10
    first, last = swaps.resident_bytes[tenth : 2 * tenth], swaps.resident_bytes[-tenth:]
    before_p50, before_p99 = _latencies(before)
    p50, p99 = _latencies(during)
    return {
        "swaps": len(swaps.seconds),
        "swap_seconds": statistics.median(swaps.seconds),
        "swap_seconds_max": max(swaps.seconds),
        "swap_calls": len(during),
        "swap_failed": len(during) - len(answers),
        "swap_mixed": sum(is_mixed(answer, swaps.contents) for answer in answers),
        "swap_versions": len({answer.catalog_version for answer in answers}),
        "swap_rss_bytes": int(statistics.median(last)),
        "swap_rss_growth": statistics.median(last) / statistics.median(first) - 1,
        "swap_p50_ms": p50,
        "swap_p99_ms": p99,
        "before_p50_ms": before_p50,
        "before_p99_ms": before_p99,
    }


def is_mixed(answer: recall_pb2.RecallResponse, contents: dict[str, frozenset[str]]) -> bool:
    """Whether it is anything but an answer of the one version that it names. contents: the items of each version."""
    of_version = contents.get(answer.catalog_version, frozenset())
    return (
        not answer.items
        or not of_version.issuperset(item.item_id for item in answer.items)
        or answer.unknown_history_items != 1  # each shop knows one of the two
    )


def _questions(shops: Sequence[Shop]) -> list[recall_pb2.RecallRequest]:
    """Six kinds in turn: without anything, with a filter, with exclusions; each past the cache and through it."""
    hats = to_filter([IsIn("kind", ["hat"])])
    kinds: list[dict[str, Any]] = [{}, {"filter": hats}, {"exclude_history": True}]
    modes = (recall_pb2.CACHE_MODE_BYPASS, recall_pb2.CACHE_MODE_USE)
    chosen = itertools.islice(itertools.cycle(itertools.product(kinds, modes)), _NUM_QUESTIONS)
    return [
        recall_pb2.RecallRequest(
            history=recall_pb2.ItemHistory(item_ids=[shop.item_ids[number] for shop in shops]), cache_mode=mode, **kind
        )
        for number, (kind, mode) in enumerate(chosen)
    ]


@asynccontextmanager
async def _asked(recall: RecallServiceStub, questions: Sequence[recall_pb2.RecallRequest]) -> AsyncIterator[list[Call]]:
    """While it lasts, callers ask one question after another; what became of them."""
    calls: list[Call] = []
    turns = itertools.cycle(questions)
    is_over = False

    async def keep_asking() -> None:
        while not is_over:
            question, answer, start = next(turns), None, time.perf_counter()
            with suppress(grpc.aio.AioRpcError):
                answer = await recall.Recall(question, timeout=_LONG_SECONDS)
            past_cache = question.cache_mode == recall_pb2.CACHE_MODE_BYPASS
            calls.append(Call(past_cache, time.perf_counter() - start, answer))
            await asyncio.sleep(_PAUSE_SECONDS)

    callers = [asyncio.create_task(keep_asking()) for _ in range(_NUM_CALLERS)]
    try:
        yield calls
    finally:
        is_over = True
        await asyncio.gather(*callers)


def _latencies(calls: Sequence[Call]) -> list[float]:
    return percentiles([call.seconds for call in calls if call.past_cache], 50, 99)
