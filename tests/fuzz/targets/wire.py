"""Calls to RecallService and AdminService: any bytes and any metadata, by a caller who may have little time.

The handlers are driven in process, with what surrounds them in a server: a pipeline over a real bundle, metrics, the
log of calls and the request log. The admin service knows one token; the bundle has no store, so that no change of its
catalogue gets beyond the refusal.
"""

import asyncio
import random
from pathlib import Path

from prometheus_client import CollectorRegistry

from recall_service.observability.call_log import CallLog
from recall_service.observability.metrics import Metrics
from recall_service.request_log.files import RotatingFiles
from recall_service.request_log.log import RequestLog
from recall_service.rpc.admin_servicer import AdminServicer
from recall_service.rpc.admission import Admission
from recall_service.rpc.authentication import Authentication, Right
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.limits import Limits
from recall_service.rpc.observer import NullCallTracer
from recall_service.rpc.servicer import RecallServicer
from recall_service.rpc.shutdown import Shutdown
from recall_service.serving.bundles.launch import Launch
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.swapping.operations import Operations
from recall_service.stubs.recall.v1 import admin_pb2, recall_pb2
from recall_service.tokens import digest_of
from tests.fuzz.call_checks import ADMIN_CODES, RECALL_CODES, check_response, check_status
from tests.fuzz.call_context import Aborted, CallContext, Metadata
from tests.fuzz.hostile import Broken, Hostile
from tests.fuzz.mutate_messages import mutate_message, spoilt_message
from tests.serving.bundles import FILTER_CACHE_BYTES, LIMITS, small_registry, write_bundle

_ITEMS = recall_pb2.ItemHistory(item_ids=("item-004", "item-017", "item-031"))
_REQUESTS = (
    recall_pb2.RecallRequest(history=_ITEMS),
    recall_pb2.RecallRequest(history=_ITEMS, num_items=3, beam_width=5, scene="feed", user_id="u"),
    recall_pb2.RecallRequest(prompt=recall_pb2.TokenPrompt(token_ids=[1, 2, 3]), include_steps=True, bundle="tiny"),
    recall_pb2.RecallRequest(
        request_id="r",
        history=recall_pb2.ItemHistory(item_ids=("item-001", "gone")),
        num_items=4,
        search_mode=recall_pb2.SEARCH_MODE_PROVEN,
        cache_mode=recall_pb2.CACHE_MODE_REFRESH,
        priority=recall_pb2.PRIORITY_LOW,
    ),
    recall_pb2.RecallRequest(
        history=_ITEMS,
        num_items=3,
        filter=recall_pb2.Filter(
            predicates=[
                {"attribute": "category", "in": {"values": [{"text": "shoes"}, {"text": "hats"}]}},
                {"attribute": "in_stock", "not_in": {"values": [{"boolean": False}]}},
                {"attribute": "price", "range": {"above": {"integer": 1}, "at_most": {"number": 60.5}}},
                {"attribute": "published", "range": {"at_least": {"integer": 1_700_000_000}}},
            ]
        ),
        exclude_item_ids=["item-001", "gone"],
        exclude_history=True,
    ),
)
_ADMIN_REQUESTS = {
    "LoadCatalog": admin_pb2.LoadCatalogRequest(bundle="tiny", version="c1"),
    "ActivateCatalog": admin_pb2.ActivateCatalogRequest(version="c1"),
    "RollbackCatalog": admin_pb2.RollbackCatalogRequest(bundle="tiny"),
    "ApplyItemUpdates": admin_pb2.ApplyItemUpdatesRequest(
        upserts=[
            admin_pb2.ItemUpsert(
                item_id="item-001", sid=[1, 2, 3], attributes={"price": {"number": 2.5}, "in_stock": {"boolean": True}}
            ),
            admin_pb2.ItemUpsert(item_id="item-002", cleared_attributes=["category"]),
        ],
        removals=["item-003", "gone"],
    ),
}
_RESPONSES = {
    "Recall": recall_pb2.RecallResponse,
    "BatchRecall": recall_pb2.BatchRecallResponse,
    "GetServingInfo": recall_pb2.GetServingInfoResponse,
    "ListBundles": admin_pb2.ListBundlesResponse,
    "Drain": admin_pb2.DrainResponse,
    "LoadCatalog": admin_pb2.LoadCatalogResponse,
    "ActivateCatalog": admin_pb2.ActivateCatalogResponse,
    "RollbackCatalog": admin_pb2.RollbackCatalogResponse,
    "ApplyItemUpdates": admin_pb2.ApplyItemUpdatesResponse,
}
_METHODS = (*("Recall",) * 7, *("BatchRecall",) * 2, *_RESPONSES)
_ADMIN_METHODS = ("ListBundles", "Drain", *_ADMIN_REQUESTS)
_SCENES = ("feed", "mail")
_TOKEN = "of-the-operator"
_METADATA: tuple[Metadata, ...] = (
    (),
    (("x-request-id", "abc"), ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")),
    (("x-request-id", "x" * 4_000), ("traceparent", "00-00-00-zz"), ("authorization", "Bearer")),
    (("x-request-id", ""), ("x-request-id-bin", b"\xff\0"), ("traceparent", ""), ("authorization", "Bearer \x7f")),
    (("authorization", f"Bearer {_TOKEN}"),),
)


class Target:
    """A response that keeps the contract, or a status that blames the caller, within the time that was asked for.

    And no metric of the caller's own.
    """

    def __init__(self, directory: Path) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._open(directory))
        self._num_series = self._count_series()
        self._num_calls = 0

    def make(self, generator: random.Random) -> Hostile:
        """place: method, which metadata, and the seconds that are left, where there is a deadline."""
        method = generator.choice(_METHODS)
        seconds = generator.choice(("-", "-", "-", "5", "0", "0.001"))
        place = f"{method}/{generator.randrange(len(_METADATA))}/{seconds}"
        message, other = generator.choice(_REQUESTS), generator.choice(_REQUESTS)
        if method in _ADMIN_REQUESTS:
            return Hostile(place, spoilt_message(generator, _ADMIN_REQUESTS[method], other))
        if method != "BatchRecall":
            return Hostile(place, spoilt_message(generator, message, other))
        entries = [mutate_message(generator, generator.choice(_REQUESTS)) for _ in range(generator.randrange(4))]
        return Hostile(place, spoilt_message(generator, recall_pb2.BatchRecallRequest(requests=entries), other))

    def check(self, hostile: Hostile) -> None:
        method, metadata, seconds = hostile.place.split("/")
        context = CallContext(_METADATA[int(metadata)], None if seconds == "-" else float(seconds))
        self._runner.run(self._call(method, hostile.data, context))
        self._shutdown.requested.clear()  # or operators could change nothing any more
        self._num_calls += 1
        if self._num_calls % 500 == 0 and self._count_series() != self._num_series:
            raise Broken("one of the last 500 calls has made a series of metrics")

    def close(self) -> None:
        self._log.close()
        self._registry.close()
        self._runner.close()

    async def _open(self, directory: Path) -> None:
        self._collectors = CollectorRegistry()
        metrics, call_log, tracer = Metrics(self._collectors, _SCENES), CallLog(0.5, _SCENES), NullCallTracer()
        (directory / "log").mkdir()
        files = RotatingFiles(directory / "log", max_file_bytes=1 << 20, max_file_seconds=60, max_files=2)
        self._log = RequestLog(files, share=0.5, rule=str, count=metrics.request_log_records)
        self._registry = small_registry(write_bundle(directory / "tiny"), observer=metrics)
        local = LocalTier(max_bytes=1 << 20, time_to_live=TimeToLive(60.0, 0.0), observer=metrics)
        pipeline = Pipeline(self._registry, ResultCache(local, None, metrics), metrics)
        admission = Admission()
        admission.open()

        everybody, operators = Authentication(), Authentication([f"operator:admin:{digest_of(_TOKEN)}"])
        guard = CallGuard(everybody, Right.RECALL, admission, metrics, metrics, call_log, tracer)
        recall = RecallServicer(pipeline, guard, Limits(), metrics, tracer, self._log, max_batch_requests=8)
        guard = CallGuard(operators, Right.ADMIN, admission, metrics, metrics, call_log, tracer)
        self._shutdown = Shutdown()
        operations = Operations(self._registry, Launch(LIMITS, metrics, FILTER_CACHE_BYTES))
        admin = AdminServicer(_Server(), operations, self._shutdown, guard)  # type: ignore[arg-type]
        handlers = recall.handlers() | admin.handlers()
        self._handlers = {name: handler.unary_unary for name, handler in handlers.items()}

    async def _call(self, method: str, data: bytes, context: CallContext) -> None:
        try:
            async with asyncio.timeout(10):
                wire = await self._handlers[method](data, context)
        except Aborted as aborted:
            check_status(aborted, ADMIN_CODES if method in _ADMIN_METHODS else RECALL_CODES)
        except TimeoutError:
            raise Broken("no answer in 10 seconds") from None
        else:
            check_response(_RESPONSES[method].FromString(wire))
        finally:
            context.end()

    def _count_series(self) -> int:
        return sum(len(family.samples) for family in self._collectors.collect())


class _Server:
    """What of a RecallServer the admin service tells."""

    lets_calls_in = True
    drain_at_most_seconds = 1.0
