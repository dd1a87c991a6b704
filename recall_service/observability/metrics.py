"""Every metric of the service, declared once. `Metrics` is an Observer by its shape: it imports nothing it listens to.

Names, units and buckets are a contract with dashboards and alerts. Seconds, bytes, `_total`. Every series exists, at
zero, before its first event. No user, item or request id is ever a label.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from recall_service.observability.labels import OTHER, Children

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
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
POWERS_OF_TWO = tuple(2**i for i in range(14))

OUTCOMES = ("ok", "cached", "short", "error")
STAGES = ("validate", "cache_get", "prompt", "queue", "prefill", "decode", "map", "cache_put", "serialize")
PHASES = ("prefill", "decode")
TIERS = ("local", "redis")
CACHE_RESULTS = ("hit", "miss", "error", "bypass")
CACHE_OPERATIONS = ("get", "put")
PREFIX_RESULTS = ("hit", "miss")
SHORT_REASONS = ("catalog_exhausted", "beam_too_narrow")
REJECT_REASONS = ("queue_full", "deadline", "invalid", "not_ready")
DEADLINE_STAGES = ("queue", "prefill", "decode")


class _Rpc(NamedTuple):
    """The children of one method."""

    started: Counter
    received: Counter
    sent: Counter
    seconds: Histogram
    handled: dict[str, Counter]  # by code


class _Load(Collector):
    """Gauges that are read when someone scrapes, all of one reading."""

    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self._read = read

    def collect(self) -> Iterable[GaugeMetricFamily]:
        load = self._read()
        yield GaugeMetricFamily("recall_queue_depth", "Requests waiting to be admitted.", load["queue_depth"])
        yield GaugeMetricFamily("recall_inflight_requests", "Requests being searched.", load["inflight_requests"])
        for name, what, states in (
            ("beam_rows", "Rows for live beams.", ("used", "free")),
            ("context_pages", "Pages of context KV.", ("used", "cached", "free")),
        ):
            family = GaugeMetricFamily(f"recall_{name}", what, labels=["state"])
            for state in states:
                family.add_metric([state], load[f"{name}_{state}"])
            yield family


class Metrics:
    """Counts what it is told. Its methods are cheap, never raise, and may be called from any thread.

    scenes: the scenes told apart; any other counts as "other", as does any other label value that is not known.
    """

    def __init__(self, registry: CollectorRegistry, scenes: Iterable[str] = ()) -> None:
        self._registry = registry

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(name, what, labels, registry=registry)

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(name, what, labels, registry=registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, what, labels, buckets=buckets, registry=registry)

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
                {code: handled.labels(*method, code) for code in (*GRPC_CODES, OTHER)},
            )

        # Questions and their answers.
        self._request_seconds = Children(
            histogram(
                "recall_request_duration_seconds", "From question to answer.", REQUEST_SECONDS, "scene", "outcome"
            ),
            scenes,
            OUTCOMES,
        )
        self._stage_seconds = Children(
            histogram("recall_stage_duration_seconds", "Stages of a question.", STAGE_SECONDS, "stage"), STAGES
        )
        self._beam_width = histogram("recall_beam_width", "Beam width used.", COUNTS)
        self._items = histogram("recall_items_returned", "Items of an answer.", COUNTS)
        self._proven = histogram("recall_proven_items", "Items of an answer proven to be the true top.", COUNTS)
        self._unknown_history = counter(
            "recall_unknown_history_items_total", "History items that the catalogue does not know."
        )
        self._short = Children(counter("recall_short_answers_total", "Short answers.", "reason"), SHORT_REASONS)
        self._rejected = Children(
            counter("recall_rejected_total", "Questions refused before any work.", "reason"), REJECT_REASONS
        )
        self._deadline_expired = Children(
            counter("recall_deadline_expired_total", "Deadlines that passed.", "stage"), DEADLINE_STAGES
        )

        # The engine.
        self._steps = Children(counter("recall_steps_total", "Steps of the engine.", "phase"), PHASES)
        self._batch_requests = Children(
            histogram("recall_batch_requests", "Requests in a step.", POWERS_OF_TWO, "phase"), PHASES
        )
        self._batch_rows = Children(histogram("recall_batch_rows", "Rows in a step.", POWERS_OF_TWO, "phase"), PHASES)
        self._rows_skipped = Children(
            counter("recall_rows_skipped_total", "Rows that could not change an answer and were not run.", "phase"),
            PHASES,
        )
        self._prefix_tokens = Children(
            counter("recall_prefix_tokens_total", "Prompt tokens that were cached or run.", "result"), PREFIX_RESULTS
        )

        # The result cache.
        self._cache_requests = Children(
            counter("recall_cache_requests_total", "Lookups.", "tier", "result"), TIERS, CACHE_RESULTS
        )
        self._cache_seconds = Children(
            histogram("recall_cache_operation_seconds", "Operations of a tier.", CACHE_SECONDS, "tier", "op"),
            TIERS,
            CACHE_OPERATIONS,
        )
        self._coalesced = counter("recall_cache_coalesced_total", "Questions answered by an equal one in flight.")
        self._breaker_open = gauge("recall_cache_breaker_open", "1 while Redis is not asked.")

        # What is served.
        self._build = gauge("recall_build_info", "This software; always 1.", "version", "python_version")
        self._bundle = gauge("recall_bundle_info", "A live bundle; always 1.", "bundle", "version", "score_space")
        self._catalog = gauge("recall_catalog_info", "A live catalogue; always 1.", "bundle", "version")
        self._catalog_items = gauge("recall_catalog_items", "Items of a live catalogue.", "bundle")
        self._warmup_seconds = gauge("recall_warmup_seconds", "How long a bundle took to warm up.", "bundle")

    # What serving reports: recall_service.serving.hooks.Observer says what each means.

    def stage(self, stage: str, seconds: float) -> None:
        """A stage of a question ended."""
        self._stage_seconds(stage).observe(seconds)

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
        self._request_seconds(scene, outcome).observe(seconds)
        self._items.observe(items)
        self._proven.observe(proven)
        self._beam_width.observe(beam_width)
        self._unknown_history.inc(unknown_history)

    def failed(self, scene: str, seconds: float) -> None:
        """A question ended in an error."""
        self._request_seconds(scene, "error").observe(seconds)

    def short(self, reason: str) -> None:
        """An answer was short."""
        self._short(reason).inc()

    def rejected(self, reason: str) -> None:
        """A question was refused before any work."""
        self._rejected(reason).inc()

    def deadline_expired(self, stage: str) -> None:
        """A deadline passed."""
        self._deadline_expired(stage).inc()

    def cache_request(self, tier: str, result: str) -> None:
        """A tier was asked."""
        self._cache_requests(tier, result).inc()

    def cache_operation(self, tier: str, operation: str, seconds: float) -> None:
        """A tier finished a get or a put."""
        self._cache_seconds(tier, operation).observe(seconds)

    def cache_coalesced(self) -> None:
        """A question was answered by an equal one in flight."""
        self._coalesced.inc()

    def cache_breaker(self, *, is_open: bool) -> None:
        """The breaker in front of Redis opened or closed."""
        self._breaker_open.set(is_open)

    def step(self, phase: str, *, requests: int, rows: int) -> None:
        """The engine ran one step. How long it took is seen per question, in its stages."""
        self._steps(phase).inc()
        self._batch_requests(phase).observe(requests)
        self._batch_rows(phase).observe(rows)

    def prefix_tokens(self, *, hit: int, miss: int) -> None:
        """A prompt was searched."""
        self._prefix_tokens("hit").inc(hit)
        self._prefix_tokens("miss").inc(miss)

    def rows_skipped(self, phase: str, rows: int) -> None:
        """A search left out rows that could not change its answer."""
        self._rows_skipped(phase).inc(rows)

    # What rpc reports: recall_service.rpc.observer.RpcObserver says what each means.

    def rpc_started(self, method: str) -> None:
        """A unary call and its message arrived."""
        rpc = self._rpc(method)
        rpc.started.inc()
        rpc.received.inc()

    def rpc_handled(self, method: str, code_name: str, seconds: float) -> None:
        """A unary call ended with a status."""
        rpc = self._rpc(method)
        rpc.handled.get(code_name, rpc.handled[OTHER]).inc()
        rpc.seconds.observe(seconds)
        if code_name == "OK":  # a call that fails sends a status and no message
            rpc.sent.inc()

    # What start-up reports.

    def build(self, version: str) -> None:
        """Which software runs."""
        self._build.labels(version, platform.python_version()).set(1)

    def bundle(self, bundle: str, version: str, score_space: str) -> None:
        """A bundle is live."""
        self._bundle.labels(bundle, version, score_space).set(1)

    def catalog(self, bundle: str, version: str, items: int) -> None:
        """A catalogue is live in a bundle."""
        self._catalog.labels(bundle, version).set(1)
        self._catalog_items.labels(bundle).set(items)

    def warmed_up(self, bundle: str, seconds: float) -> None:
        """A bundle is warm."""
        self._warmup_seconds.labels(bundle).set(seconds)

    def watch_load(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Call `read` at every scrape, from the scraper's thread, for how busy the engine is.

        It returns queue_depth, inflight_requests, beam_rows_used and _free, context_pages_used, _cached and _free.
        """
        self._registry.register(_Load(read))

    def _rpc(self, method: str) -> _Rpc:
        return self._rpcs.get(method, self._rpcs[OTHER])
