"""Every metric of the service, declared once. `Metrics` is an Observer by its shape: it imports nothing it listens to.

Names, units and buckets are a contract with dashboards and alerts. Seconds, bytes, `_total`. Every series exists, at
zero, before its first event. No user, item or request id is ever a label.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Gauge, GCCollector, ProcessCollector

from recall_service.observability.collectors import GpuMemory, Load
from recall_service.observability.labels import OTHER, Children, OneOfEach
from recall_service.observability.tallies import Buckets, Count, Counter, Histogram

RPC_SERVICE = "recall.v1.RecallService"
RPC_METHODS = ("Recall", "BatchRecall", "GetServingInfo")

# fmt: off
REQUEST_SECONDS = (  # the threshold of an SLO has to be an edge
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5,
)
GRPC_CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)
# fmt: on
STAGE_SECONDS = tuple(50e-6 * 2**i for i in range(16))
CACHE_SECONDS = tuple(100e-6 * 2**i for i in range(12))
FILTER_SECONDS = tuple(50e-6 * 4**i for i in range(9))
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
POWERS_OF_TWO = tuple(2**i for i in range(14))

OUTCOMES = ("ok", "cached", "short", "error")
STAGES = (
    "validate",
    "cache_get",
    "filter",
    "prompt",
    "queue",
    "prefill",
    "decode",
    "select",
    "map",
    "cache_put",
    "serialize",
)
PHASES = ("prefill", "decode")
TIERS = ("local", "redis")
CACHE_RESULTS = ("hit", "stale", "miss", "error", "bypass")
REFRESH_RESULTS = ("done", "failed", "dropped")
CACHE_OPERATIONS = ("get", "put")
PREFIX_RESULTS = ("hit", "miss")
FILTER_RESULTS = ("hit", "computed")
SHORT_REASONS = ("catalog_exhausted", "beam_too_narrow", "filter_too_narrow")
REJECT_REASONS = (
    "queue_full",
    "deadline",
    "client_limit",
    "scene_limit",
    "memory",
    "invalid",
    "not_ready",
    "unauthenticated",
    "permission_denied",
)
REQUEST_LOG_RESULTS = ("written", "sampled_out", "dropped")
DEADLINE_STAGES = ("queue", "prefill", "decode")
RELOAD_KINDS = ("bundle", "catalog")
RELOAD_RESULTS = ("ok", "failed")


class _Rpc(NamedTuple):
    """The children of one method."""

    started: Count
    received: Count
    sent: Count
    seconds: Buckets
    handled: Children[Count]  # by code


class Metrics:
    """Counts what it is told. Its methods are cheap, never raise, and may be called from any thread.

    scenes: the scenes told apart; any other counts as "other", as does any other label value that is not known.
    trace_id: says which trace is being recorded of the current call, if any: the exemplar of its durations, which
        OpenMetrics shows and plain text does not.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        scenes: Iterable[str] = (),
        trace_id: Callable[[], str | None] | None = None,
    ) -> None:
        self._registry = registry
        self._trace_id = trace_id

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, labels, registry)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(name, what, labels, registry=registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, what, labels, buckets, registry)

        def counters(name: str, what: str, **known: Iterable[str]) -> Children[Count]:
            return Children(counter(name, what, *known).labels, *known.values())

        def histograms(name: str, what: str, buckets: tuple[float, ...], **known: Iterable[str]) -> Children[Buckets]:
            return Children(histogram(name, what, buckets, *known).labels, *known.values())

        # gRPC, under the names that every dashboard knows.
        rpc = ("grpc_type", "grpc_service", "grpc_method")
        started = counter("grpc_server_started_total", "RPCs started.", *rpc)
        received = counter("grpc_server_msg_received_total", "Messages received.", *rpc)
        sent = counter("grpc_server_msg_sent_total", "Messages sent.", *rpc)
        seconds = histogram(
            "grpc_server_handling_seconds", "From the start of an RPC to its end.", REQUEST_SECONDS, *rpc
        )
        handled = counter("grpc_server_handled_total", "RPCs ended, by code.", *rpc, "grpc_code")
        self._rpcs: dict[str, _Rpc] = {}
        for name in (*RPC_METHODS, OTHER):
            method = ("unary", RPC_SERVICE, name)
            self._rpcs[name] = _Rpc(
                started.labels(*method),
                received.labels(*method),
                sent.labels(*method),
                seconds.labels(*method),
                Children(partial(handled.labels, *method), GRPC_CODES),
            )

        self._ready = gauge("recall_ready", "1 while this replica wants calls: its health says SERVING.")

        # Questions and their answers.
        self._request_seconds = histograms(
            "recall_request_duration_seconds",
            "From question to answer.",
            REQUEST_SECONDS,
            scene=scenes,
            outcome=OUTCOMES,
        )
        self._stage_seconds = histograms(
            "recall_stage_duration_seconds", "Stages of a question.", STAGE_SECONDS, stage=STAGES
        )
        self._beam_width = histogram("recall_beam_width", "Beam width used.", COUNTS).labels()
        self._items = histogram("recall_items_returned", "Items of an answer.", COUNTS).labels()
        self._proven = histogram(
            "recall_proven_items", "Items of an answer proven to be the true top.", COUNTS
        ).labels()
        self._unknown_history = counter(
            "recall_unknown_history_items_total", "History items that the catalogue does not know."
        ).labels()
        self._filter_seconds = histograms(
            "recall_filter_duration_seconds",
            "Until it was known what a filter keeps.",
            FILTER_SECONDS,
            result=FILTER_RESULTS,
        )
        self._unknown_excluded = counter(
            "recall_unknown_excluded_items_total", "Excluded items that the catalogue does not know."
        ).labels()
        self._short = counters("recall_short_answers_total", "Short answers.", reason=SHORT_REASONS)
        self._rejected = counters("recall_rejected_total", "Questions refused before any work.", reason=REJECT_REASONS)
        self._deadline_expired = counters(
            "recall_deadline_expired_total", "Deadlines that passed.", stage=DEADLINE_STAGES
        )

        # The engine.
        self._engine_unhealthy = gauge(
            "recall_engine_unhealthy", "1 while an engine is stuck in a step, or fails every one.", "bundle"
        )
        self._steps = counters("recall_steps_total", "Steps of the engine.", phase=PHASES)
        self._batch_requests = histograms("recall_batch_requests", "Requests in a step.", POWERS_OF_TWO, phase=PHASES)
        self._batch_rows = histograms("recall_batch_rows", "Rows in a step.", POWERS_OF_TWO, phase=PHASES)
        self._rows_skipped = counters(
            "recall_rows_skipped_total", "Rows that could not change an answer and were not run.", phase=PHASES
        )
        self._prefix_tokens = counters(
            "recall_prefix_tokens_total", "Prompt tokens that were cached or run.", result=PREFIX_RESULTS
        )

        # The result cache.
        self._cache_requests = counters("recall_cache_requests_total", "Lookups.", tier=TIERS, result=CACHE_RESULTS)
        self._cache_seconds = histograms(
            "recall_cache_operation_seconds", "Operations of a tier.", CACHE_SECONDS, tier=TIERS, op=CACHE_OPERATIONS
        )
        self._coalesced = counter(
            "recall_cache_coalesced_total", "Questions answered by an equal one in flight."
        ).labels()
        self._refreshes = counters(
            "recall_cache_refreshes_total", "Stale answers to be computed anew.", result=REFRESH_RESULTS
        )
        self._breaker_open = gauge("recall_cache_breaker_open", "1 while Redis is not asked.")

        # The request log.
        self._request_log_records = counters(
            "recall_request_log_records_total", "Recalls by what the request log did.", result=REQUEST_LOG_RESULTS
        )

        # What is served.
        self._build = gauge("recall_build_info", "This software; always 1.", "version", "python_version")
        self._bundle = OneOfEach(
            gauge("recall_bundle_info", "A live bundle; always 1.", "bundle", "version", "score_space")
        )
        self._catalog = OneOfEach(gauge("recall_catalog_info", "A live catalogue; always 1.", "bundle", "version"))
        self._catalog_items = gauge("recall_catalog_items", "Items of a live catalogue.", "bundle")
        self._catalog_loaded = gauge(
            "recall_catalog_loaded_timestamp_seconds",
            "When a live catalogue went live, in seconds since 1970.",
            "bundle",
        )
        self._reloads = counters(
            "recall_reloads_total", "Loads while serving.", kind=RELOAD_KINDS, result=RELOAD_RESULTS
        )
        self._warmup_seconds = gauge("recall_warmup_seconds", "How long a bundle took to warm up.", "bundle")

    # What serving reports: recall_service.serving.hooks.Observer says what each means.

    def stage(self, stage: str, seconds: float) -> None:
        """A stage of a question ended."""
        self._stage_seconds[stage].observe(seconds)

    def answered(
        self,
        scene: str,
        outcome: str,
        seconds: float,
        *,
        items: int,
        proven: int,
        beam_width: int,
        unknown_history: int,
    ) -> None:
        """A question was answered."""
        self._request_seconds[scene, outcome].observe(seconds, self._exemplar())
        self._items.observe(items)
        self._proven.observe(proven)
        self._beam_width.observe(beam_width)
        if unknown_history:
            self._unknown_history.inc(unknown_history)

    def failed(self, scene: str, seconds: float) -> None:
        """A question ended in an error."""
        self._request_seconds[scene, "error"].observe(seconds, self._exemplar())

    def short(self, reason: str) -> None:
        """An answer was short."""
        self._short[reason].inc()

    def rejected(self, reason: str) -> None:
        """A question was refused before any work."""
        self._rejected[reason].inc()

    def deadline_expired(self, stage: str) -> None:
        """A deadline passed."""
        self._deadline_expired[stage].inc()

    def cache_request(self, tier: str, result: str) -> None:
        """A tier was asked."""
        self._cache_requests[tier, result].inc()

    def cache_operation(self, tier: str, operation: str, seconds: float) -> None:
        """A tier finished a get or a put."""
        self._cache_seconds[tier, operation].observe(seconds)

    def cache_coalesced(self) -> None:
        """A question was answered by an equal one in flight."""
        self._coalesced.inc()

    def cache_refresh(self, result: str) -> None:
        """A stale answer was computed anew, or was not."""
        self._refreshes[result].inc()

    def cache_breaker(self, *, is_open: bool) -> None:
        """The breaker in front of Redis opened or closed."""
        self._breaker_open.set(is_open)

    def step(self, phase: str, *, requests: int, rows: int) -> None:
        """The engine ran one step. How long it took is seen per question, in its stages."""
        self._steps[phase].inc()
        self._batch_requests[phase].observe(requests)
        self._batch_rows[phase].observe(rows)

    def engine_health(self, bundle: str, *, healthy: bool) -> None:
        """An engine is found fit to search, or not."""
        self._engine_unhealthy.labels(bundle).set(not healthy)

    def prefix_tokens(self, *, hit: int, miss: int) -> None:
        """A prompt was searched."""
        self._prefix_tokens["hit"].inc(hit)
        self._prefix_tokens["miss"].inc(miss)

    def rows_skipped(self, phase: str, rows: int) -> None:
        """A search left out rows that could not change its answer."""
        self._rows_skipped[phase].inc(rows)

    def filter_resolved(self, result: str, seconds: float) -> None:
        """What a filter keeps is known."""
        self._filter_seconds[result].observe(seconds)

    def unknown_excluded(self, count: int) -> None:
        """So many excluded items are not in the catalogue."""
        self._unknown_excluded.inc(count)

    def bundle(self, bundle: str, version: str, score_space: str) -> None:
        """A bundle went live, and the one of its name before it, if any, did not stay."""
        self._bundle.show(bundle, version, score_space)

    def catalog(self, bundle: str, version: str, items: int) -> None:
        """A catalogue went live in a bundle, and the one before it, if any, did not stay."""
        self._catalog.show(bundle, version)
        self._catalog_items.labels(bundle).set(items)
        self._catalog_loaded.labels(bundle).set_to_current_time()

    def reloaded(self, kind: str, result: str) -> None:
        """A bundle or a catalogue (kind) was to go live while serving: result is ok or failed."""
        self._reloads[kind, result].inc()

    def warmed_up(self, bundle: str, seconds: float) -> None:
        """A bundle is warm."""
        self._warmup_seconds.labels(bundle).set(seconds)

    # What rpc reports: recall_service.rpc.observer.RpcObserver says what each means.

    def rpc_started(self, method: str) -> None:
        """A unary call and its message arrived."""
        rpc = self._rpc(method)
        rpc.started.inc()
        rpc.received.inc()

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        """A unary call ended with a status."""
        rpc = self._rpc(method)
        rpc.handled[code_name].inc()
        rpc.seconds.observe(seconds, self._exemplar())
        if code_name == "OK":  # a call that fails sends a status and no message
            rpc.sent.inc()

    def ready(self, *, is_ready: bool) -> None:
        """The server's health says SERVING from now on, or NOT_SERVING."""
        self._ready.set(is_ready)

    def request_log_records(self, result: str, count: int) -> None:
        """So many recalls were written to the request log, sampled_out of it, or dropped."""
        self._request_log_records[result].inc(count)

    # What start-up reports.

    def build(self, version: str) -> None:
        """Which software runs."""
        self._build.labels(version, platform.python_version()).set(1)

    def watch_load(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Call `read` at every scrape, from the scraper's thread, for how busy the engine is.

        It returns queue_depth, queue_rows, queue_tokens, queue_age_seconds, inflight_requests, beam_rows_used and
        _free, context_pages_used, _cached and _free.
        """
        self._registry.register(Load(read))

    def watch_gpu_memory(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Call `read` at every scrape, from the scraper's thread, for the bytes of a GPU by state."""
        self._registry.register(GpuMemory(read))

    def watch_process(self) -> None:
        """Also expose this process (CPU, memory, file descriptors, start) and its garbage collector."""
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def _exemplar(self) -> dict[str, str] | None:
        trace_id = self._trace_id() if self._trace_id else None
        return {"trace_id": trace_id} if trace_id else None

    def _rpc(self, method: str) -> _Rpc:
        return self._rpcs.get(method, self._rpcs[OTHER])
