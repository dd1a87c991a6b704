"""Calls as OpenTelemetry traces, sent over OTLP/HTTP: one span for the call, and below it where its time went.

Only what `tracing` in the project's extras installs is needed beyond the rest, and nothing imports this module unless
traces are asked for. Knows nothing of calls but what it is told, at their start, at their end, and in between.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from threading import Thread
from typing import NamedTuple

from opentelemetry import context as current
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from recall_service.observability.labels import fold

RPC_SERVICE = "recall.v1.RecallService"
TRACES_PATH = "/v1/traces"
EXPORT_SECONDS = 5.0  # for one batch of spans, all tries together; it is lost afterwards
CLOSE_SECONDS = 3.0  # for what is still to be sent when the server ends

_HEADERS = frozenset({"traceparent", "tracestate"})
_FAULTS_OF_THE_SERVER = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)


class _Started(NamedTuple):
    """A call that is being recorded, and what was current before it."""

    span: Span
    before: Token[Context]


class Tracing:
    """Records calls; `processor` takes what was recorded. Its methods are cheap and may be called from any task.

    sample: share of the calls that are recorded, 0 to 1, unless the caller's `traceparent` decides.
    version: of this software. scenes: the scenes told apart; any other is "other".
    """

    def __init__(self, processor: SpanProcessor, *, sample: float, version: str, scenes: Iterable[str]) -> None:
        own = Resource({"service.name": "recall-service", "service.version": version})
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # of the calls that `start` lets through, for a span that is dropped later is not free
            resource=own.merge(OTELResourceDetector().detect()),  # OTEL_SERVICE_NAME and the like, where set
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("recall_service", version)
        self._sample = sample
        self._propagator = TraceContextTextMapPropagator()
        self._scenes = frozenset(scenes)

    # What rpc reports: recall_service.rpc.observer.CallTracer says what each means.

    def start(self, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> _Started | None:
        """A call arrived; None when it is not to be recorded."""
        headers = {key: str(value) for key, value in metadata if key in _HEADERS}
        caller = self._propagator.extract(headers, Context()) if headers else Context()
        if not self._is_recorded(caller):
            return None
        span = self._tracer.start_span(
            f"{RPC_SERVICE}/{method}",
            context=caller,
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": RPC_SERVICE, "rpc.method": method},
        )
        return _Started(span, current.attach(trace.set_span_in_context(span)))

    def end(self, started: _Started | None, code_name: str, facts: Callable[[], Mapping[str, str | int]]) -> None:
        """The call ended with a status."""
        if started is None:
            return
        span, before = started
        span.set_attributes({f"recall.{name}": value for name, value in self._folded(facts()).items()})
        span.set_attribute("rpc.response.status_code", code_name)
        if code_name in _FAULTS_OF_THE_SERVER:
            span.set_status(Status(StatusCode.ERROR))
        current.detach(before)
        span.end()

    @contextmanager
    def entry(self, position: int) -> Iterator[None]:
        """One entry of a batch."""
        if not trace.get_current_span().is_recording():
            yield
            return
        # What an exception says may quote the history, so it is not recorded; the batch tells how many entries failed.
        with self._tracer.start_as_current_span(
            "entry", attributes={"recall.position": position}, record_exception=False, set_status_on_exception=False
        ):
            yield

    # What serving reports: recall_service.serving.hooks.Tracer says what each means.

    def span(self, name: str, started: float, ended: float, **facts: str | int) -> None:
        """A part of the current call, from one instant of `time.monotonic()` to another."""
        if not trace.get_current_span().is_recording():
            return
        since_1970 = time.time_ns() - time.monotonic_ns()
        attributes = {f"recall.{name}": value for name, value in facts.items()}
        part = self._tracer.start_span(name, start_time=since_1970 + round(started * 1e9), attributes=attributes)
        part.end(since_1970 + round(ended * 1e9))

    # For whoever names the trace beside something else.

    def trace_id(self) -> str | None:
        """The id of the trace that is being recorded of the current call, 32 hexadecimal digits; None without one."""
        span = trace.get_current_span()
        return trace.format_trace_id(span.get_span_context().trace_id) if span.is_recording() else None

    def close(self) -> None:
        """Send what is left, for at most CLOSE_SECONDS."""
        sending = Thread(target=self._provider.shutdown, name="close-tracing", daemon=True)
        sending.start()
        sending.join(CLOSE_SECONDS)

    def _is_recorded(self, caller: Context) -> bool:
        """As the caller decided, or by chance where none did."""
        parent = trace.get_current_span(caller).get_span_context()
        return parent.trace_flags.sampled if parent.is_valid else random.random() < self._sample  # noqa: S311

    def _folded(self, facts: Mapping[str, str | int]) -> Mapping[str, str | int]:
        return {**facts, "scene": fold(str(facts["scene"]), self._scenes)} if "scene" in facts else facts


def open_tracing(endpoint: str, *, sample: float, version: str, scenes: Iterable[str]) -> Tracing:
    """Record calls and send them to the collector at `endpoint`, the base URL of OTLP/HTTP, from a thread of its own.

    A collector that is down, slow or hung costs spans, never a call: a bounded queue, the oldest spans go first.
    """
    exporter = OTLPSpanExporter(endpoint.rstrip("/") + TRACES_PATH, timeout=EXPORT_SECONDS)
    return Tracing(BatchSpanProcessor(exporter), sample=sample, version=version, scenes=scenes)
