"""The gRPC server around a backend: its life from warm-up to drain, with health and reflection.

Knows no models, no catalogue and no cache; the backend is handed in, and so are those who listen.
"""

import asyncio
import contextlib
import signal

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from recall_service.errors import SetupError
from recall_service.rpc.admission import Admission
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.health import HealthServicer
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
from recall_service.serving.hooks import NullObserver, Observer
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc

SERVICE_NAME = recall_pb2.DESCRIPTOR.services_by_name["RecallService"].full_name
MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_BATCH_REQUESTS = 64
DRAIN_SECONDS = 20.0

# Calls that reach a stopping gRPC server end as CANCELLED, which no caller retries. So the server lives on for a moment
# to refuse in words, while callers that watch its health turn to other replicas.
_NOTICE_SECONDS = 0.25

# After the drain only answers on their way out and streams of reflection are left.
_STOP_GRACE_SECONDS = 0.5

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    # Otherwise two servers share a port in silence, and each gets half of the calls.
    ("grpc.so_reuseport", 0),
)


class RecallServer:
    """Serves `backend` on `address` ("host:port"; port 0 takes a free one). Make it inside a running event loop.

    Life: `start` (health NOT_SERVING, calls refused with UNAVAILABLE), `mark_serving`, `drain` or `stop`; each once.
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
        max_batch_requests: int = MAX_BATCH_REQUESTS,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._address = address
        self._drain_seconds = drain_seconds
        self._admission = Admission()
        self._health = HealthServicer(SERVICE_NAME)
        self._server = grpc.aio.server(options=_OPTIONS)
        observer, tracer = observer or NullObserver(), tracer or NullCallTracer()
        guard = CallGuard(
            self._admission, observer, rpc_observer or NullRpcObserver(), call_log or NullCallLog(), tracer
        )
        servicer = RecallServicer(
            backend, guard, observer, tracer, recall_log or NullRecallLog(), max_batch_requests=max_batch_requests
        )
        recall_pb2_grpc.add_RecallServiceServicer_to_server(servicer, self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE_NAME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> int:
        """Listen, and return the port. Raises SetupError when the address cannot be had."""
        await self._health.set_serving(False)
        try:
            port = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise SetupError(
                f"address: cannot listen on {self._address}; free the port, or give another address"
            ) from error
        await self._server.start()
        return port

    async def mark_serving(self) -> None:
        """Warm-up has ended: let calls in, then tell the world. Without effect once draining."""
        self._admission.open()
        await self._health.set_serving(True)

    async def drain(self) -> None:
        """Stop without losing a call: health NOT_SERVING first, refuse new calls, let those inside finish.

        Calls still inside after `drain_seconds` are cut off. Health streams end with NOT_SERVING.
        """
        await self._health.enter_graceful_shutdown()
        self._admission.close()
        await asyncio.sleep(_NOTICE_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._admission.wait_until_empty(), self._drain_seconds)
        self._health.end_watches()
        await self._server.stop(_STOP_GRACE_SECONDS)

    async def stop(self) -> None:
        """Stop at once: calls inside are cancelled, and their callers told so."""
        await self._server.stop(None)

    async def serve_until_signal(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain; a second signal cuts the drain short."""
        loop = asyncio.get_running_loop()
        first, second = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: (second if first.is_set() else first).set())
        try:
            await first.wait()
            hurry = asyncio.create_task(self._stop_upon(second))
            await self.drain()
            hurry.cancel()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _stop_upon(self, event: asyncio.Event) -> None:
        await event.wait()
        await self.stop()
