"""The two gRPC servers of a process, built as its settings say: one for those who ask, one for operators."""

from typing import TYPE_CHECKING

from recall_service.config import Settings
from recall_service.observability.call_log import CallLog
from recall_service.observability.metrics import Metrics
from recall_service.protection import announce_protection, tls_files
from recall_service.request_log.log import RequestLog
from recall_service.rpc.admin_backend import AdminBackend
from recall_service.rpc.admin_server import AdminServer
from recall_service.rpc.authentication import Authentication
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.connection_options import ConnectionOptions
from recall_service.rpc.limits import Limits
from recall_service.rpc.lost_answers import quiet_lost_answers
from recall_service.rpc.server import RecallServer
from recall_service.rpc.shutdown import Shutdown
from recall_service.setting_values import host_and_port

if TYPE_CHECKING:
    from recall_service.observability.tracing import Tracing


def open_servers(
    settings: Settings,
    backend: RecallBackend,
    admin_backend: AdminBackend,
    shutdown: Shutdown,
    *,
    metrics: Metrics,
    tracing: "Tracing | None",
    request_log: RequestLog | None,
) -> tuple[RecallServer, AdminServer]:
    """A server for those who ask, and one for operators; neither listens yet. How they are protected is logged."""
    announce_protection(settings)
    quiet_lost_answers()
    authentication = Authentication(settings.tokens, by_certificate=settings.tls_client_ca is not None)
    tls = tls_files(settings)
    connections = ConnectionOptions(
        max_request_bytes=settings.max_request_bytes,
        keepalive_seconds=settings.keepalive_seconds,
        max_connection_age_seconds=settings.max_connection_age_seconds,
    )
    call_log = CallLog(settings.call_log_sample, settings.scenes, tracing.trace_id if tracing else None)
    server = RecallServer(
        backend,
        host_and_port(settings.host, settings.port),
        observer=metrics,
        rpc_observer=metrics,
        call_log=call_log,
        tracer=tracing,
        recall_log=request_log,
        authentication=authentication,
        limits=Limits(settings.client_limits, settings.scene_limits, observer=metrics),
        tls=tls,
        connections=connections,
        reflection=settings.reflection,
        max_batch_requests=settings.max_batch_requests,
        drain_notice_seconds=settings.drain_notice_seconds,
        drain_seconds=settings.drain_seconds,
    )
    admin = AdminServer(
        server,
        host_and_port(settings.admin_host, settings.admin_port),
        admin_backend,
        shutdown,
        observer=metrics,
        call_log=call_log,
        authentication=authentication,
        tls=tls,
        connections=connections,
        reflection=settings.reflection,
    )
    return server, admin
