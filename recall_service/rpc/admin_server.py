"""The operators' gRPC server: AdminService on a port of its own, with the health of the server it looks after."""

from dataclasses import replace

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection as grpc_reflection

from recall_service.rpc.admin_backend import AdminBackend
from recall_service.rpc.admin_servicer import AdminServicer
from recall_service.rpc.admission import Admission
from recall_service.rpc.authentication import Authentication, Right
from recall_service.rpc.connection_options import MAX_ADMIN_REQUEST_BYTES, ConnectionOptions
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.listening import listen
from recall_service.rpc.observer import CallLog, NullCallLog, NullCallTracer, NullRpcObserver
from recall_service.rpc.server import RecallServer
from recall_service.rpc.shutdown import Shutdown
from recall_service.rpc.tls import TlsFiles
from recall_service.serving.hooks import NullObserver, Observer
from recall_service.stubs.recall.v1 import admin_pb2

SERVICE_NAME = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name


class AdminServer:
    """Looks after `served` on `address` ("host:port"; port 0 takes a free one). Make it inside a running event loop.

    backend: does what is asked. shutdown: told of a Drain. observer: told of calls that are refused.
    Lets calls in from `start` to `stop`, warm-up and drain included.
    """

    def __init__(
        self,
        served: RecallServer,
        address: str,
        backend: AdminBackend,
        shutdown: Shutdown,
        *,
        observer: Observer | None = None,
        call_log: CallLog | None = None,
        authentication: Authentication | None = None,
        tls: TlsFiles | None = None,
        connections: ConnectionOptions | None = None,
        reflection: bool = True,
    ) -> None:
        self._address, self._tls = address, tls
        connections = replace(connections or ConnectionOptions(), max_request_bytes=MAX_ADMIN_REQUEST_BYTES)
        self._server = grpc.aio.server(
            options=connections.channel_arguments(drain_seconds=served.drain_at_most_seconds)
        )
        admission = Admission()
        admission.open()
        guard = CallGuard(
            authentication or Authentication(),
            Right.ADMIN,
            admission,
            observer or NullObserver(),
            NullRpcObserver(),
            call_log or NullCallLog(),
            NullCallTracer(),
        )
        servicer = AdminServicer(served, backend, shutdown, guard)
        self._server.add_registered_method_handlers(SERVICE_NAME, servicer.handlers())
        health_pb2_grpc.add_HealthServicer_to_server(served.health, self._server)
        if reflection:
            names = (SERVICE_NAME, health.SERVICE_NAME, grpc_reflection.SERVICE_NAME)
            grpc_reflection.enable_server_reflection(names, self._server)

    async def start(self) -> int:
        """Listen, and return the port. Raises SetupError when the address cannot be had or TLS cannot be set up."""
        port = listen(self._server, self._address, self._tls)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stop at once."""
        await self._server.stop(None)
