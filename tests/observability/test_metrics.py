import inspect
import re
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from recall_service.errors import SettingsError
from recall_service.observability.metrics import GRPC_CODES, OUTCOMES, REQUEST_SECONDS, RPC_METHODS, STAGES, Metrics
from recall_service.observability.metrics_endpoint import MetricsEndpoint, serve_metrics
from recall_service.rpc.observer import RpcObserver
from recall_service.serving.hooks import Observer

LOAD = {
    "queue_age_seconds": 1.5,
    "queue_depth": 3,
    "queue_rows": 300,
    "queue_tokens": 96,
    "inflight_requests": 2,
    "beam_rows_used": 500,
    "beam_rows_free": 1548,
    "context_pages_used": 7,
    "context_pages_cached": 11,
    "context_pages_free": 494,
}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> Metrics:
    return Metrics(registry, scenes=("feed", "mail"))


def num_series(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect())


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(name, labels)
    assert found is not None, f"{name}{labels} is not exposed"
    return found


@pytest.mark.parametrize("protocol", [Observer, RpcObserver])
def test_has_the_shape_of_what_reports_to_it(protocol: type) -> None:
    """By inspection, for observability may not import what it listens to."""
    methods = {name: method for name, method in vars(protocol).items() if inspect.isfunction(method) and name[0] != "_"}
    assert methods
    for name, method in methods.items():
        assert list(inspect.signature(getattr(Metrics, name)).parameters) == list(inspect.signature(method).parameters)


def test_every_series_is_there_before_its_first_event(registry: CollectorRegistry, metrics: Metrics) -> None:
    for scene in ("feed", "mail", "other"):
        for outcome in OUTCOMES:
            assert value(registry, "recall_request_duration_seconds_count", scene=scene, outcome=outcome) == 0
    for stage in STAGES:
        assert value(registry, "recall_stage_duration_seconds_count", stage=stage) == 0
    for method in RPC_METHODS:
        labels = {"grpc_type": "unary", "grpc_service": "recall.v1.RecallService", "grpc_method": method}
        for code in GRPC_CODES:
            assert value(registry, "grpc_server_handled_total", **labels, grpc_code=code) == 0
    for result in ("hit", "stale", "miss", "error", "bypass"):
        assert value(registry, "recall_cache_requests_total", tier="redis", result=result) == 0
    for result in ("done", "failed", "dropped"):
        assert value(registry, "recall_cache_refreshes_total", result=result) == 0
    for reason in ("queue_full", "deadline", "invalid", "not_ready", "unauthenticated"):
        assert value(registry, "recall_rejected_total", reason=reason) == 0
    for kind in ("bundle", "catalog"):
        for result in ("ok", "failed"):
            assert value(registry, "recall_reloads_total", kind=kind, result=result) == 0


def test_names_follow_the_rules(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.watch_load(lambda: LOAD)
    counts = {"recall_beam_width", "recall_items_returned", "recall_proven_items"}
    for family in registry.collect():
        assert re.fullmatch(r"(recall|grpc_server)_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        if family.type == "histogram":
            assert family.name.endswith("_seconds") or family.name.startswith("recall_batch_") or family.name in counts
        if family.type == "counter":  # the client adds _total to a counter's samples
            assert not family.name.endswith("_total")
        assert not {"user_id", "item_id", "request_id"} & {label for s in family.samples for label in s.labels}


def test_the_buckets_are_the_contract(registry: CollectorRegistry, metrics: Metrics) -> None:
    edges = {
        family.name: sorted({float(s.labels["le"]) for s in family.samples if s.name.endswith("_bucket")})
        for family in registry.collect()
        if family.type == "histogram"
    }
    infinity = float("inf")
    assert edges["recall_request_duration_seconds"] == [*REQUEST_SECONDS, infinity]
    assert edges["recall_stage_duration_seconds"] == pytest.approx([50e-6 * 2**i for i in range(16)] + [infinity])
    assert edges["recall_cache_operation_seconds"] == pytest.approx([100e-6 * 2**i for i in range(12)] + [infinity])
    assert edges["recall_beam_width"][:9] == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    assert edges["recall_batch_rows"][:5] == [1, 2, 4, 8, 16]


def test_counts_what_it_is_told_and_the_sums_agree(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.answered("feed", "ok", 0.004, items=50, proven=20, beam_width=100, unknown_history=2)
    metrics.answered("nowhere", "short", 0.02, items=3, proven=3, beam_width=5, unknown_history=0)
    metrics.failed("mail", 0.5)
    metrics.short("beam_too_narrow")
    metrics.step("decode", requests=2, rows=150)
    metrics.prefix_tokens(hit=64, miss=10)
    metrics.rows_skipped("decode", 325)
    metrics.cache_refresh("dropped")
    metrics.cache_breaker(is_open=True)
    requests = {
        (s.labels["scene"], s.labels["outcome"]): s.value
        for family in registry.collect()
        for s in family.samples
        if s.name == "recall_request_duration_seconds_count" and s.value
    }
    assert requests == {("feed", "ok"): 1, ("other", "short"): 1, ("mail", "error"): 1}
    assert value(registry, "recall_request_duration_seconds_bucket", scene="feed", outcome="ok", le="0.005") == 1
    assert value(registry, "recall_request_duration_seconds_bucket", scene="feed", outcome="ok", le="0.003") == 0
    assert value(registry, "recall_items_returned_sum") == 53
    assert value(registry, "recall_proven_items_sum") == 23
    assert value(registry, "recall_beam_width_sum") == 105
    assert value(registry, "recall_unknown_history_items_total") == 2
    assert value(registry, "recall_short_answers_total", reason="beam_too_narrow") == 1
    assert value(registry, "recall_steps_total", phase="decode") == 1
    assert value(registry, "recall_batch_rows_sum", phase="decode") == 150
    assert value(registry, "recall_rows_skipped_total", phase="decode") == 325
    assert value(registry, "recall_prefix_tokens_total", result="hit") == 64
    assert value(registry, "recall_prefix_tokens_total", result="miss") == 10
    assert value(registry, "recall_cache_refreshes_total", result="dropped") == 1
    assert value(registry, "recall_cache_breaker_open") == 1


def test_calls_are_counted_as_every_grpc_dashboard_expects(registry: CollectorRegistry, metrics: Metrics) -> None:
    for code in ("OK", "INTERNAL", "OK"):
        metrics.rpc_started("Recall")
        metrics.rpc_handled("Recall", code, 0.01)
    labels = {"grpc_type": "unary", "grpc_service": "recall.v1.RecallService", "grpc_method": "Recall"}
    assert value(registry, "grpc_server_started_total", **labels) == 3
    assert value(registry, "grpc_server_msg_received_total", **labels) == 3
    assert value(registry, "grpc_server_msg_sent_total", **labels) == 2
    assert value(registry, "grpc_server_handling_seconds_count", **labels) == 3
    assert value(registry, "grpc_server_handled_total", **labels, grpc_code="OK") == 2
    assert value(registry, "grpc_server_handled_total", **labels, grpc_code="INTERNAL") == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(one=st.text(), other=st.text())
def test_no_input_makes_a_new_series(registry: CollectorRegistry, metrics: Metrics, one: str, other: str) -> None:
    before = num_series(registry)
    metrics.stage(one, 0.1)
    metrics.answered(one, other, 0.1, items=1, proven=1, beam_width=1, unknown_history=1)
    metrics.failed(one, 0.1)
    metrics.short(one)
    metrics.rejected(one)
    metrics.deadline_expired(one)
    metrics.cache_request(one, other)
    metrics.cache_refresh(one)
    metrics.cache_operation(one, other, 0.1)
    metrics.step(one, requests=1, rows=1)
    metrics.rows_skipped(one, 1)
    metrics.request_log_records(one, 1)
    metrics.reloaded(one, other)
    metrics.filter_resolved(one, 0.1)
    metrics.unknown_excluded(1)
    metrics.rpc_started(one)
    metrics.rpc_handled(one, other, 0.1)
    assert num_series(registry) == before


def test_an_unknown_label_value_counts_as_other_and_a_known_one_beside_it_stays(
    registry: CollectorRegistry, metrics: Metrics
) -> None:
    metrics.cache_request("redis", "exploded")
    metrics.rpc_handled("Shutdown", "OK", 0.1)
    assert value(registry, "recall_cache_requests_total", tier="redis", result="other") == 1
    labels = {"grpc_type": "unary", "grpc_service": "recall.v1.RecallService", "grpc_method": "other"}
    assert value(registry, "grpc_server_handled_total", **labels, grpc_code="OK") == 1


def test_load_is_read_at_every_scrape(registry: CollectorRegistry, metrics: Metrics) -> None:
    load = dict(LOAD)
    metrics.watch_load(lambda: load)
    assert value(registry, "recall_queue_depth") == 3
    assert value(registry, "recall_queue_rows") == 300
    assert value(registry, "recall_queue_tokens") == 96
    assert value(registry, "recall_queue_age_seconds") == 1.5
    assert value(registry, "recall_inflight_requests") == 2
    assert value(registry, "recall_beam_rows", state="free") == 1548
    for state, pages in (("used", 7), ("cached", 11), ("free", 494)):
        assert value(registry, "recall_context_pages", state=state) == pages
    load["queue_depth"] = 4
    assert value(registry, "recall_queue_depth") == 4


def test_memory_of_a_gpu_is_read_at_every_scrape(registry: CollectorRegistry, metrics: Metrics) -> None:
    bytes_by_state = {"used": 3, "kept": 2, "other": 1, "free": 94}
    metrics.watch_gpu_memory(lambda: bytes_by_state)
    for state, num_bytes in bytes_by_state.items():
        assert value(registry, "recall_gpu_memory_bytes", state=state) == num_bytes
    bytes_by_state["free"] = 95
    assert value(registry, "recall_gpu_memory_bytes", state="free") == 95


def test_the_process_is_watched_too(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.watch_process()
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert "python_gc_collections_total" in names
    if sys.platform == "linux":
        assert value(registry, "process_resident_memory_bytes") > 1 << 20
        assert {"process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds"} <= names


CALLS = st.lists(st.tuples(st.sampled_from(RPC_METHODS), st.sampled_from(GRPC_CODES), st.floats(0, 5)), max_size=50)
ANSWERS = st.lists(st.tuples(st.sampled_from(["feed", "x"]), st.sampled_from(OUTCOMES), st.integers(0, 400)))


@given(calls=CALLS, answers=ANSWERS)
def test_what_is_counted_twice_is_counted_alike(calls: list[tuple[str, str, float]], answers: list[Any]) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, scenes=("feed",))
    for method, code, seconds in calls:
        metrics.rpc_started(method)
        metrics.rpc_handled(method, code, seconds)
    for scene, outcome, items in answers:
        metrics.answered(scene, outcome, 0.1, items=items, proven=items, beam_width=items, unknown_history=0)
    sums: Counter[str] = Counter()
    for family in registry.collect():
        for sample in family.samples:
            if sample.labels.get("grpc_code", "OK") == "OK":
                sums[f"{sample.name} OK"] += sample.value
            sums[sample.name] += sample.value
    assert sums["grpc_server_started_total"] == sums["grpc_server_handled_total"] == len(calls)
    assert sums["grpc_server_msg_received_total"] == sums["grpc_server_handling_seconds_count"] == len(calls)
    assert sums["grpc_server_msg_sent_total"] == sums["grpc_server_handled_total OK"]
    assert sums["recall_request_duration_seconds_count"] == sums["recall_items_returned_count"] == len(answers)
    assert sums["recall_items_returned_sum"] == sums["recall_proven_items_sum"] == sum(items for *_, items in answers)


def test_says_what_is_served(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.build("0.1.0")
    metrics.bundle("demo", "7", "CATALOG")
    metrics.catalog("demo", "2026-01-01", 12_088)
    metrics.warmed_up("demo", 1.5)
    metrics.reloaded("catalog", "failed")
    assert value(registry, "recall_bundle_info", bundle="demo", version="7", score_space="CATALOG") == 1
    assert value(registry, "recall_catalog_info", bundle="demo", version="2026-01-01") == 1
    assert value(registry, "recall_catalog_items", bundle="demo") == 12_088
    assert value(registry, "recall_catalog_loaded_timestamp_seconds", bundle="demo") == pytest.approx(
        time.time(), abs=60
    )
    assert value(registry, "recall_reloads_total", kind="catalog", result="failed") == 1
    assert value(registry, "recall_warmup_seconds", bundle="demo") == 1.5
    [build] = [family for family in registry.collect() if family.name == "recall_build_info"]
    assert build.samples[0].labels["version"] == "0.1.0"


def test_what_was_served_before_is_shown_no_more(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.bundle("demo", "7", "CATALOG")
    metrics.bundle("other", "7", "CATALOG")
    metrics.catalog("demo", "monday", 10)
    metrics.catalog("other", "monday", 10)
    before = num_series(registry)
    metrics.bundle("demo", "8", "VOCABULARY")
    for version in ("tuesday", "tuesday", "wednesday"):
        metrics.catalog("demo", version, 11)
    assert num_series(registry) == before
    shown = {
        (sample.labels["bundle"], sample.labels["version"])
        for family in registry.collect()
        if family.name == "recall_catalog_info"
        for sample in family.samples
    }
    assert shown == {("demo", "wednesday"), ("other", "monday")}
    assert value(registry, "recall_bundle_info", bundle="demo", version="8", score_space="VOCABULARY") == 1
    assert value(registry, "recall_bundle_info", bundle="other", version="7", score_space="CATALOG") == 1
    assert value(registry, "recall_catalog_items", bundle="demo") == 11


def test_filters_are_counted_with_what_they_cost(registry: CollectorRegistry, metrics: Metrics) -> None:
    metrics.filter_resolved("computed", 0.1)
    metrics.filter_resolved("hit", 1e-5)
    metrics.filter_resolved("hit", 1e-5)
    metrics.unknown_excluded(3)
    assert value(registry, "recall_filter_duration_seconds_count", result="hit") == 2
    assert value(registry, "recall_filter_duration_seconds_sum", result="computed") == 0.1
    assert value(registry, "recall_unknown_excluded_items_total") == 3


class TestEndpoint:
    @pytest.fixture
    def endpoint(self, registry: CollectorRegistry, metrics: Metrics) -> MetricsEndpoint:
        metrics.watch_load(lambda: LOAD)
        metrics.watch_gpu_memory(lambda: {"used": 1, "free": 2})
        metrics.watch_process()
        metrics.build("0.1.0")
        metrics.short("beam_too_narrow")
        return serve_metrics(registry, "127.0.0.1", 0)

    @pytest.mark.parametrize(
        ("accept", "parse"),
        [("application/openmetrics-text; version=1.0.0", parse_openmetrics), ("text/plain", parse_text)],
        ids=["openmetrics", "text"],
    )
    def test_a_scrape_parses(
        self, accept: str, parse: Callable[[str], list[Metric]], endpoint: MetricsEndpoint, registry: CollectorRegistry
    ) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}/metrics", headers={"Accept": accept})
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                assert response.headers["Content-Type"].startswith(accept.split(";")[0])
                scraped = [sample for family in parse(response.read().decode()) for sample in family.samples]
        finally:
            endpoint.close()
        assert len(scraped) == num_series(registry)
        [short] = [s for s in scraped if s.name == "recall_short_answers_total" and "beam" in s.labels["reason"]]
        assert short.value == 1

    def test_closed_means_closed(self, endpoint: MetricsEndpoint, registry: CollectorRegistry) -> None:
        endpoint.close()
        again = serve_metrics(registry, "127.0.0.1", endpoint.port)  # raises where somebody still listens
        again.close()
        assert again.port == endpoint.port

    def test_a_taken_port_is_refused(self, endpoint: MetricsEndpoint, registry: CollectorRegistry) -> None:
        try:
            with pytest.raises(SettingsError, match=rf"metrics_port: cannot listen on 127\.0\.0\.1:{endpoint.port}: "):
                serve_metrics(registry, "127.0.0.1", endpoint.port)
        finally:
            endpoint.close()
