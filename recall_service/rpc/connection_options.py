"""What gRPC is told about connections, messages and pings: every channel argument of our servers, with its reason."""

from dataclasses import dataclass

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_ADMIN_REQUEST_BYTES = 8 * 1024 * 1024  # 10,000 item updates of 800 bytes each; usual ones have 100
MAX_RESPONSE_BYTES = 16 * 1024 * 1024  # 64 answers of 1,000 items with steps are about 6 MiB; our client takes as much
MAX_CALLS_PER_CONNECTION = 1_024
_KEEPALIVE_TIMEOUT_SECONDS = 20.0
_LEAST_PING_SECONDS = 5.0
_AGE_GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Bounds of messages and connections. The settings of the same names say what each means."""

    max_request_bytes: int = MAX_REQUEST_BYTES
    keepalive_seconds: float = 60.0
    max_connection_age_seconds: float = 600.0

    def channel_arguments(self, *, drain_seconds: float) -> list[tuple[str, int]]:
        """As `grpc.aio.server` takes them. drain_seconds: how long calls under way may take when the server ends."""
        return [
            # Larger messages are refused by gRPC itself, before we see them. By default it would send any size.
            ("grpc.max_receive_message_length", self.max_request_bytes),
            ("grpc.max_send_message_length", MAX_RESPONSE_BYTES),
            # One connection cannot hold more than that many calls; its client sends the next ones once others end.
            ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
            # A client whose machine is gone says nothing: ask, or its connection is kept for hours.
            ("grpc.keepalive_time_ms", _milliseconds(self.keepalive_seconds)),
            ("grpc.keepalive_timeout_ms", _milliseconds(_KEEPALIVE_TIMEOUT_SECONDS)),
            # Clients may ask too, every 10 seconds with slack for jitter, calls or no calls. By default gRPC forbids
            # more than one ping in 5 minutes, in 2 hours without calls, and answers the third with GOAWAY
            # ENHANCE_YOUR_CALM.
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(_LEAST_PING_SECONDS)),
            ("grpc.http2.max_ping_strikes", 2),
            # Else a client keeps to the replicas that were there when it started. gRPC spreads the age by a tenth, so
            # that not all come anew at once. Calls under way have longer to end than a drain would give them.
            ("grpc.max_connection_age_ms", _milliseconds(self.max_connection_age_seconds)),
            ("grpc.max_connection_age_grace_ms", _milliseconds(drain_seconds + _AGE_GRACE_SECONDS)),
            # Otherwise two servers share a port in silence, and each gets half of the calls.
            ("grpc.so_reuseport", 0),
        ]


def _milliseconds(seconds: float) -> int:
    """At least 1, at most what gRPC can hold: about 24 days, after which it is told 24 days."""
    return max(1, min(round(seconds * 1000), 2**31 - 1))
