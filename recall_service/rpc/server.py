"""The gRPC server around a backend: its life from warm-up to drain, with health and reflection.

Knows no models, no catalogue and no cache; the backend is handed in, and so are those who listen.
"""

import asyncio
import contextlib

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection as grpc_reflection

from recall_service.rpc.admission import Admission
from recall_service.rpc.authentication import Authentication, Right
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.connection_options import ConnectionOptions
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.health import HealthServicer
from recall_service.rpc.limits import Limits
from recall_service.rpc.listening import listen
from recall_service.rpc.observer import (
    CallLog,
    CallTracer,
    NullCallLog,
    NullCallTracer,
    NullRpcObserver,
    RpcObserver,
)
from recall_service.rpc.recall_log import NullRecallLog, RecallLog
from recall_service.rpc.servicer import RecallServicer
from recall_service.rpc.shutdown import Shutdown, done_before
from recall_service.rpc.tls import TlsFiles
from recall_service.serving.hooks import NullObserver, Observer
from recall_service.stubs.recall.v1 import recall_pb2

SERVICE_NAME = recall_pb2.DESCRIPTOR.services_by_name["RecallService"].full_name
MAX_BATCH_REQUESTS = 64
DRAIN_SECONDS = 20.0

# Calls that reach a stopping gRPC server end as CANCELLED, which no caller retries. So the server lives on for a moment
# to refuse in words those that were on their way.
_REFUSAL_SECONDS = 0.25

# After the drain only answers on their way out and streams of reflection are left.
_STOP_GRACE_SECONDS = 0.5


class RecallServer:
    """Serves `backend` on `address` ("host:port"; port 0 takes a free one). Make it inside a running event loop.

    Life: `start` (health NOT_SERVING, calls refused with UNAVAILABLE), `mark_serving`, `drain` or `stop`; each once.
    authentication, limits, tls: everybody, none and none unless given.
    """

    def __init__(
        self,
        backend: RecallBackend,
        address: str,
        *,
        observer: Observer | None = None,
        rpc_observer: RpcObserver | None = None,
        call_log: CallLog | None = None,
        tracer: CallTracer | None = None,
        recall_log: RecallLog | None = None,
        authentication: Authentication | None = None,
        limits: Limits | None = None,
        tls: TlsFiles | None = None,
        connections: ConnectionOptions | None = None,
        reflection: bool = True,
        max_batch_requests: int = MAX_BATCH_REQUESTS,
        drain_notice_seconds: float = 0.0,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._address, self._tls = address, tls
        self._drain_notice_seconds, self._drain_seconds = drain_notice_seconds, drain_seconds
        self._healthy, self._draining = True, False
        self._admission = Admission()
        self._rpc_observer = rpc_observer or NullRpcObserver()
        self.health = HealthServicer(SERVICE_NAME)
        connections = connections or ConnectionOptions()
        self._server = grpc.aio.server(options=connections.channel_arguments(drain_seconds=drain_seconds))
        observer, tracer = observer or NullObserver(), tracer or NullCallTracer()
        guard = CallGuard(
            authentication or Authentication(),
            Right.RECALL,
            self._admission,
            observer,
            self._rpc_observer,
            call_log or NullCallLog(),
            tracer,
        )
        servicer = RecallServicer(
            backend,
            guard,
            limits or Limits(),
            observer,
            tracer,
            recall_log or NullRecallLog(),
            max_batch_requests=max_batch_requests,
        )
        self._server.add_registered_method_handlers(SERVICE_NAME, servicer.handlers())
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        if reflection:
            names = (SERVICE_NAME, health.SERVICE_NAME, grpc_reflection.SERVICE_NAME)
            grpc_reflection.enable_server_reflection(names, self._server)

    @property
    def lets_calls_in(self) -> bool:
        """Whether a call that came now would be let in."""
        return self._admission.is_open

    @property
    def drain_at_most_seconds(self) -> float:
        """How long `drain` may take."""
        return self._drain_notice_seconds + _REFUSAL_SECONDS + self._drain_seconds + _STOP_GRACE_SECONDS

    async def start(self) -> int:
        """Listen, and return the port. Raises SetupError when the address cannot be had or TLS cannot be set up."""
        await self._tell_health()
        port = listen(self._server, self._address, self._tls)
        await self._server.start()
        return port

    async def mark_serving(self) -> None:
        """Warm-up has ended: let calls in, then tell the world. Without effect once draining."""
        self._admission.open()
        await self._tell_health()

    async def set_healthy(self, healthy: bool) -> None:
        """Whether what answers is well; while it is not, health says NOT_SERVING, and calls are let in all the same."""
        self._healthy = healthy
        await self._tell_health()

    async def drain(self) -> None:
        """Stop without losing a call: health NOT_SERVING first, calls let in while that gets around; then refuse.

        Calls still inside `drain_seconds` after that are cut off. Health streams end with NOT_SERVING.
        """
        self._draining = True
        await self._tell_health()
        await self.health.enter_graceful_shutdown()
        await asyncio.sleep(self._drain_notice_seconds)
        self._admission.close()
        await asyncio.sleep(_REFUSAL_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._admission.wait_until_empty(), self._drain_seconds)
        self.health.end_watches()
        await self._server.stop(_STOP_GRACE_SECONDS)

    async def stop(self) -> None:
        """Stop at once: calls inside are cancelled, and their callers told so."""
        await self._server.stop(None)

    async def serve_until(self, shutdown: Shutdown) -> None:
        """Serve until an end is asked for, then drain; a second word cuts the drain short."""
        await shutdown.requested.wait()
        if not await done_before(shutdown.hurried, self.drain()):
            await self.stop()

    async def serve_until_signal(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        shutdown = Shutdown()
        with shutdown.listening():
            await self.serve_until(shutdown)

    async def _tell_health(self) -> None:
        is_ready = self._admission.is_open and self._healthy and not self._draining
        self._rpc_observer.ready(is_ready=is_ready)
        await self.health.set_serving(is_ready)
