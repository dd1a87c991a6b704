"""The HTTP endpoint that Prometheus scrapes, in a thread of its own: an event loop that is stuck can still be seen."""

from dataclasses import dataclass
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, disable_created_metrics, start_http_server

from recall_service.errors import SettingsError


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """A running endpoint. port: where it listens."""

    port: int
    _server: WSGIServer
    _thread: Thread

    def close(self) -> None:
        """Stop listening; returns when the thread has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> MetricsEndpoint:
    """Serve `registry` at http://host:port/metrics, as text or OpenMetrics by the Accept header.

    port: 0 picks a free one. Raises SettingsError when the address cannot be listened on.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call] # a second series per counter, which nobody reads
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise SettingsError(
            f"metrics_host, metrics_port: cannot listen on {host}:{port}: {error.strerror}; give a free address"
        ) from None
    return MetricsEndpoint(server.server_port, server, thread)
