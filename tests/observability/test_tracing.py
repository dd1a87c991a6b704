"""Traces of real calls through the real pipeline, and what is never in them."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.request import Request, urlopen

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from recall_service.app import open_tracing
from recall_service.config import Settings
from recall_service.errors import SettingsError
from recall_service.observability.metrics import Metrics
from recall_service.observability.metrics_endpoint import serve_metrics
from recall_service.observability.tracing import Tracing
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.pipeline import Pipeline
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import FakeBackend, by_history, by_prompt, running
from tests.serving.bundles import small_registry, write_bundle

HISTORY = ("item-004", "item-017", "item-031")
CALLER_TRACE, CALLER_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{CALLER_TRACE}-{CALLER_SPAN}-01", f"00-{CALLER_TRACE}-{CALLER_SPAN}-00"
JITTER_NS = 1_000_000  # parts are placed by another clock than their call


class Traced:
    """A tracing that remembers its spans, and metrics that name its traces."""

    def __init__(self, sample: float) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = Tracing(SimpleSpanProcessor(self.exporter), sample=sample, version="1", scenes=["feed"])
        self.collectors = CollectorRegistry()
        self.metrics = Metrics(self.collectors, ["feed"], self.tracing.trace_id)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    @property
    def root(self) -> ReadableSpan:
        [root] = [span for span in self.spans if span.kind is SpanKind.SERVER]
        return root

    def below(self, parent: ReadableSpan) -> list[ReadableSpan]:
        """The parts of a span, in the order in which they began."""
        parts = [span for span in self.spans if span.parent and span.parent.span_id == parent.context.span_id]
        return sorted(parts, key=lambda span: span.start_time or 0)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("recall."): value for name, value in (span.attributes or {}).items()}


@pytest.fixture
def traced() -> Traced:
    return Traced(1.0)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    directory = write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")
    registry = small_registry(directory, observer=Metrics(CollectorRegistry()))
    yield registry
    registry.close()


@pytest.fixture
async def stub(registry: Registry, traced: Traced) -> AsyncIterator[Any]:
    """Of a server that is traced, around a real pipeline with an empty cache."""
    metrics = traced.metrics
    local = LocalTier(max_bytes=1 << 20, time_to_live=TimeToLive(60.0, 0.0), observer=metrics)
    pipeline = Pipeline(registry, ResultCache(local, None, metrics), metrics, traced.tracing)
    async with running(pipeline, tracer=traced.tracing, observer=metrics, rpc_observer=metrics) as service:
        yield service.stub


async def test_a_computed_answer_shows_every_part(stub: Any, traced: Traced) -> None:
    await stub.Recall(by_history(*HISTORY, scene="feed", request_id="r-1"))
    root, parts = traced.root, traced.below(traced.root)
    assert root.name == "recall.v1.RecallService/Recall"
    assert [part.name for part in parts] == [
        "cache",
        "prompt",
        "queue",
        "prefill",
        "level 0",
        "level 1",
        "level 2",
        "map",
    ]
    assert {span.context.trace_id for span in traced.spans} == {root.context.trace_id}
    facts = attributes(root)
    assert (facts["rpc.system"], facts["rpc.method"], facts["rpc.response.status_code"]) == ("grpc", "Recall", "OK")
    assert (facts["request_id"], facts["scene"], facts["bundle"]) == ("r-1", "feed", "tiny")
    assert (facts["served_from"], facts["items"]) == ("engine", 10)
    assert root.status.status_code is StatusCode.UNSET
    by_name = {part.name: attributes(part) for part in parts}
    assert by_name["cache"] == {"result": "miss"}
    assert [by_name[f"level {level}"]["rows"] for level in range(3)] == [1, 4, 12]
    assert by_name["map"] == {"items": 10}


async def test_parts_follow_each_other_inside_their_call(stub: Any, traced: Traced) -> None:
    await stub.Recall(by_history(*HISTORY, cache_mode=recall_pb2.CACHE_MODE_BYPASS))
    root, parts = traced.root, traced.below(traced.root)
    assert root.start_time is not None
    assert root.end_time is not None
    ends = root.start_time
    for part in parts:
        assert part.start_time is not None
        assert part.end_time is not None
        assert part.start_time >= ends - JITTER_NS, part.name
        assert part.end_time >= part.start_time, part.name
        ends = part.end_time
    assert ends <= root.end_time + JITTER_NS


async def test_a_cached_answer_shows_the_cache_alone(stub: Any, traced: Traced) -> None:
    await stub.Recall(by_history(*HISTORY))
    traced.exporter.clear()
    await stub.Recall(by_history(*HISTORY))
    [cache] = traced.below(traced.root)
    assert (cache.name, attributes(cache)) == ("cache", {"result": "local"})
    assert attributes(traced.root)["served_from"] == "local_cache"


async def test_an_equal_question_in_flight_shows_who_waited(stub: Any, traced: Traced) -> None:
    entries = [by_history(*HISTORY)] * 2  # of one batch: both are under way before the engine can answer
    await stub.BatchRecall(recall_pb2.BatchRecallRequest(requests=entries))
    assert sorted(attributes(span)["result"] for span in traced.named("cache")) == ["coalesced", "miss"]
    assert len(traced.named("prefill")) == 1


async def test_entries_of_a_batch_keep_their_parts_apart(stub: Any, traced: Traced) -> None:
    entries = [by_history(*HISTORY), by_history(*HISTORY[:2]), by_prompt(10_000)]
    await stub.BatchRecall(recall_pb2.BatchRecallRequest(requests=entries))
    shown = traced.below(traced.root)
    assert [(span.name, attributes(span)) for span in shown] == [("entry", {"position": n}) for n in range(3)]
    for entry in shown[:2]:
        assert "prefill" in [part.name for part in traced.below(entry)]
    assert [part.name for part in traced.below(shown[2])] == ["cache"]
    assert (attributes(traced.root)["entries"], attributes(traced.root)["failed"]) == (3, 1)


@pytest.mark.parametrize(
    ("sample", "traceparent", "recorded"),
    [
        (1.0, None, True),
        (0.0, None, False),
        (0.0, SAMPLED, True),
        (1.0, NOT_SAMPLED, False),
        (1.0, "00-nonsense-ff-01", True),
        (1.0, "~" * 500, True),
        (0.0, f"00-{'0' * 32}-{CALLER_SPAN}-01", False),
    ],
    ids=["all", "none", "caller says yes", "caller says no", "malformed", "long", "a trace id of zeros"],
)
async def test_which_calls_are_recorded(sample: float, traceparent: str | None, recorded: bool) -> None:
    traced = Traced(sample)
    metadata = [("traceparent", traceparent)] if traceparent else []
    async with running(FakeBackend(), tracer=traced.tracing) as service:
        await service.stub.Recall(by_history(), metadata=metadata)
    assert len(traced.spans) == recorded
    if recorded:
        is_callers = traceparent == SAMPLED
        assert (f"{traced.root.context.trace_id:032x}" == CALLER_TRACE) == is_callers
        assert (traced.root.parent is not None) == is_callers


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [(ValueError("item-004"), "INTERNAL", StatusCode.ERROR), (None, "INVALID_ARGUMENT", StatusCode.UNSET)],
    ids=["a fault of the server", "a fault of the caller"],
)
async def test_how_a_call_failed(error: Exception | None, code: str, status: StatusCode, traced: Traced) -> None:
    async with running(FakeBackend(error), tracer=traced.tracing) as service:
        with pytest.raises(grpc.aio.AioRpcError):
            await service.stub.Recall(by_history("item-004", *([] if error else [""])))
    assert attributes(traced.root)["rpc.response.status_code"] == code
    assert traced.root.status.status_code is status


async def test_a_cancelled_call_is_recorded_too(traced: Traced) -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend, tracer=traced.tracing) as service:
        call = service.stub.Recall(by_history())
        await backend.entered.wait()
        call.cancel()
        await asyncio.wait_for(backend.left.wait(), 5)
    assert attributes(traced.root)["rpc.response.status_code"] == "CANCELLED"


async def test_no_user_no_history_and_no_item_is_in_a_trace(stub: Any, traced: Traced) -> None:
    asked = {"user_id": "someone", "scene": "a surface of 'someone'"}
    await stub.Recall(by_history(*HISTORY, **asked))
    entries = [by_history(*HISTORY, **asked), by_history("", "item-004", **asked)]
    await stub.BatchRecall(recall_pb2.BatchRecallRequest(requests=entries))
    written = "".join(span.to_json() for span in traced.spans)
    assert "recall.scene" in written
    assert "someone" not in written
    assert "item-" not in written


async def test_calls_at_the_same_time_do_not_mix(traced: Traced) -> None:
    async with running(FakeBackend(), tracer=traced.tracing) as service:
        callers = [f"{number:032x}" for number in range(1, 21)]
        await asyncio.gather(
            *(
                service.stub.Recall(
                    by_history(request_id=caller), metadata=[("traceparent", f"00-{caller}-{CALLER_SPAN}-01")]
                )
                for caller in callers
            )
        )
    assert {attributes(span)["request_id"]: f"{span.context.trace_id:032x}" for span in traced.spans} == {
        caller: caller for caller in callers
    }


class TestExemplars:
    def scrape(self, traced: Traced, accept: str) -> str:
        endpoint = serve_metrics(traced.collectors, "127.0.0.1", 0)
        try:
            request = Request(f"http://127.0.0.1:{endpoint.port}/metrics", headers={"Accept": accept})
            return str(urlopen(request, timeout=5).read().decode())
        finally:
            endpoint.close()

    async def test_durations_name_a_trace_in_openmetrics_and_in_nothing_else(self, stub: Any, traced: Traced) -> None:
        await stub.Recall(by_history(*HISTORY, scene="feed"))
        families = list(parse_openmetrics(self.scrape(traced, "application/openmetrics-text; version=1.0.0")))
        exemplars = {
            sample.name: (sample.exemplar.labels, sample.exemplar.value)
            for family in families
            for sample in family.samples
            if sample.exemplar
        }
        trace_id = {"trace_id": f"{traced.root.context.trace_id:032x}"}
        assert {name: labels for name, (labels, _) in exemplars.items()} == {
            "recall_request_duration_seconds_bucket": trace_id,
            "grpc_server_handling_seconds_bucket": trace_id,
        }
        assert all(seconds > 0 for _, seconds in exemplars.values())
        assert trace_id["trace_id"] not in self.scrape(traced, "text/plain")

    async def test_calls_that_are_not_recorded_leave_none(self) -> None:
        traced = Traced(0.0)
        metrics = traced.metrics
        async with running(FakeBackend(), tracer=traced.tracing, observer=metrics, rpc_observer=metrics) as service:
            await service.stub.Recall(by_history())
        assert "trace_id" not in self.scrape(traced, "application/openmetrics-text; version=1.0.0")


def test_nothing_is_traced_unless_a_collector_is_set() -> None:
    assert open_tracing(Settings()) is None


def test_what_sends_traces_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "recall_service.observability.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SettingsError, match=r"otlp_endpoint: opentelemetry is not installed; pip install"):
        open_tracing(Settings(otlp_endpoint="http://127.0.0.1:4318"))
