"""What a channel does by itself: balance, watch health, try again, stay alive, bound messages. Knows no address.

Trying again is gRPC's own work, within the deadline of the call:

- Only UNAVAILABLE and RESOURCE_EXHAUSTED, at most three attempts in all. Round robin gives the next one to another
  replica. What the server asks for in `grpc-retry-pushback-ms` is waited instead of the backoff; a negative value ends
  the call at once, and so does anything that is no number.
- gRPC does not compare the wait with the deadline: a call that is told to come back too late ends with
  DEADLINE_EXCEEDED, at its deadline. And 0 ms is never tried again (seen with grpcio 1.85.3). Servers send 1 or more,
  and -1 where the deadline comes first.
- The budget is each client's own, so share one client: fifty tries at once, so that a replica which dies with as many
  calls inside is not missed, and beyond that one for ten calls that succeed.
"""

import json
from typing import Any

SERVICE = "recall.v1.RecallService"

# Both sides state their limits. The server's default for requests is the same 4 MiB.
MAX_REQUEST_BYTES = 4 * 1024**2
# gRPC's default of 4 MiB would lose the answer to 64 questions for 1,000 items each, with the steps of four
# levels: 5.8 MB where ids are UUIDs.
MAX_RESPONSE_BYTES = 16 * 1024**2

# A connection that died in silence is found out within 40 s. Servers of ours let clients ask every 10 s.
KEEPALIVE_MILLISECONDS = 30_000
_KEEPALIVE_TIMEOUT_MILLISECONDS = 10_000

# gRPC's default grows to two minutes, for which a client would ignore a replica that is back.
_MAX_RECONNECT_MILLISECONDS = 5_000

BALANCING: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
RETRYING = BALANCING | {
    # Replicas that warm up or drain say so to whoever watches, and get no calls.
    "healthCheckConfig": {"serviceName": SERVICE},
    "methodConfig": [
        {
            "name": [{"service": SERVICE}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.05s",  # each wait is this, doubled every time, and up to a fifth more or less
                "maxBackoff": "0.5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
            },
        }
    ],
    # A failure takes one token, a success gives a tenth back; nothing is repeated with half of them or fewer.
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
}


def channel_options(
    service_config: dict[str, Any], *, max_request_bytes: int = MAX_REQUEST_BYTES
) -> list[tuple[str, Any]]:
    """The options of a channel that does what `service_config` says: BALANCING, or RETRYING too."""
    return [
        ("grpc.service_config", json.dumps(service_config)),
        ("grpc.max_send_message_length", max_request_bytes),
        ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
        ("grpc.per_rpc_retry_buffer_size", max_request_bytes),  # by default, what is above 256 KiB is not tried again
        ("grpc.keepalive_time_ms", KEEPALIVE_MILLISECONDS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MILLISECONDS),
        ("grpc.max_reconnect_backoff_ms", _MAX_RECONNECT_MILLISECONDS),
    ]
