"""A backend without a model, observers that remember, and a server around them on a free port."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import numpy as np

from item_catalog.attributes import AttributeKind
from recall_service.engine.request import ScoreSpace
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.server import RecallServer
from recall_service.serving.hooks import NullObserver
from recall_service.serving.items_wire import encode_items
from recall_service.serving.query import BundleInfo, RecallAnswer, RecallQuery, ServedFrom, ShortReason, Timings
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc

ATTRIBUTES = (
    ("category", AttributeKind.TEXT),
    ("in_stock", AttributeKind.BOOLEAN),
    ("price", AttributeKind.NUMBER),
    ("published", AttributeKind.INTEGER),
)
MAIN = BundleInfo("main", "m1", "c7", 1_000, (16, 32, 64), ScoreSpace.VOCABULARY, 20, 400, 10, 200, 512, 50, ATTRIBUTES)
SMALL = BundleInfo("small", "s1", "c8", 10, (4, 4), ScoreSpace.CATALOG, 2, 4, 1, 4, 16, 5)


def make_answer(num_items: int = 3, *, steps: bool = True, short_reason: ShortReason | None = None) -> RecallAnswer:
    """An answer of three levels with different values everywhere."""
    grid = np.arange(num_items * 3).reshape(num_items, 3)
    item_ids = tuple(f"item-{rank}" for rank in range(num_items))
    scores, sids = -1.0 - np.arange(num_items, dtype=np.float64) / 8, grid.astype(np.int32)
    step_log_probs = (-grid / 16).astype(np.float32) if steps else None
    step_ranks = (grid + 1).astype(np.int32) if steps else None
    return RecallAnswer(
        item_ids=item_ids,
        scores=scores,
        sids=sids,
        step_log_probs=step_log_probs,
        step_ranks=step_ranks,
        items_wire=encode_items(item_ids, scores, sids, step_log_probs, step_ranks),
        short_reason=short_reason,
        proven_count=2,
        served_from=ServedFrom.LOCAL_CACHE,
        bundle="main",
        bundle_version="m1",
        catalog_version="c7",
        score_space=ScoreSpace.CODEBOOK,
        beam_width=20,
        unknown_history_items=4,
        unknown_excluded_items=6,
        rows_forwarded=61,
        rows_skipped=17,
        timings=Timings(0.000_001, 0.000_02, 0.000_3),
    )


class FakeBackend:
    """Answers at once, unless told to raise `error` or to wait for `gate`; a question of scene "broken" always fails.

    Remembers the questions, and how many of them were cancelled.
    """

    def __init__(self, error: BaseException | None = None, gate: asyncio.Event | None = None) -> None:
        self.error = error
        self.gate = gate
        self.queries: list[RecallQuery] = []
        self.num_cancelled = 0
        self.entered = asyncio.Event()
        self.left = asyncio.Event()

    async def recall(self, query: RecallQuery, scene: str) -> RecallAnswer:
        self.queries.append(query)
        self.entered.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.left.set()
        if self.error is not None:
            raise self.error
        if scene == "broken":
            raise ValueError("a secret of the inside")
        return make_answer(query.num_items or 3, steps=query.include_steps)

    def bundles(self) -> Sequence[BundleInfo]:
        return (MAIN, SMALL)


class RememberingObserver(NullObserver):
    """Remembers what the server reports, for both kinds of listener."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.rejections: list[str] = []
        self.started: list[str] = []
        self.handled: list[tuple[str, str]] = []
        self.readiness: list[bool] = []

    def stage(self, stage: str, seconds: float) -> None:
        assert seconds >= 0
        self.stages.append(stage)

    def rejected(self, reason: str) -> None:
        self.rejections.append(reason)

    def rpc_started(self, method: str) -> None:
        self.started.append(method)

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        assert seconds >= 0
        self.handled.append((method, code_name))

    def ready(self, *, is_ready: bool) -> None:
        self.readiness.append(is_ready)


class Running(NamedTuple):
    """A started server and a way to talk to it."""

    server: RecallServer
    observer: RememberingObserver
    address: str
    channel: grpc.aio.Channel
    stub: Any


@asynccontextmanager
async def running(backend: RecallBackend, *, serving: bool = True, **settings: Any) -> AsyncIterator[Running]:
    """A server around `backend`, open for calls when `serving`, stopped in the end."""
    observer = RememberingObserver()
    listeners = {"observer": observer, "rpc_observer": observer}
    server = RecallServer(backend, "127.0.0.1:0", **(listeners | settings))
    address = f"127.0.0.1:{await server.start()}"
    if serving:
        await server.mark_serving()
    async with grpc.aio.insecure_channel(address) as channel:
        yield Running(server, observer, address, channel, recall_pb2_grpc.RecallServiceStub(channel))
    await server.stop()


def by_history(*item_ids: str, **fields: Any) -> recall_pb2.RecallRequest:
    """A request that asks by history."""
    return recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=item_ids or ("a", "b")), **fields)


def by_prompt(*token_ids: int, **fields: Any) -> recall_pb2.RecallRequest:
    """A request that asks by prompt."""
    return recall_pb2.RecallRequest(prompt=recall_pb2.TokenPrompt(token_ids=token_ids), **fields)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, for five seconds at most."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
