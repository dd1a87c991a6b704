"""Something to send traces to: a collector that keeps what it gets, and one that never answers."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Received:
    """What a collector was sent so far. services: of whom."""

    url: str
    paths: list[str] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)


@contextmanager
def collector() -> Iterator[Received]:
    """Takes OTLP over HTTP while it lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.paths.append(self.path)
            sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource_spans in sent.resource_spans:
                attributes = {entry.key: entry.value.string_value for entry in resource_spans.resource.attributes}
                received.services.add(attributes["service.name"])
                for scope_spans in resource_spans.scope_spans:
                    received.spans.extend(scope_spans.spans)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield received
    server.shutdown()
    server.server_close()
    thread.join()


@contextmanager
def hung_collector() -> Iterator[str]:
    """The URL of one that takes connections, while it lasts, and nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
