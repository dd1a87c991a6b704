"""The limit of the stack: `python -m benchmarks.service_echo NUM_BYTES BUSY_US`, a grpc.aio server that does nothing.

It answers every Recall with the same bytes, so many of them, on the event loop of the service, which it first keeps
busy for so many microseconds. Writes its port, and serves until it is ended.
"""

import sys
import time
from typing import Any

import grpc

from recall_service.event_loop import run
from recall_service.rpc.server import SERVICE_NAME


async def main(num_bytes: int, busy_us: float) -> None:
    """Serve on a free port of the loopback interface."""
    answer = bytes(num_bytes)

    async def echo(request: bytes, context: Any) -> bytes:
        del request, context
        until = time.thread_time() + busy_us / 1e6  # as the answers' cost was measured: less what it waits for a core
        while time.thread_time() < until:
            pass
        return answer

    server = grpc.aio.server()
    server.add_registered_method_handlers(SERVICE_NAME, {"Recall": grpc.unary_unary_rpc_method_handler(echo)})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    run(main(int(sys.argv[1]), float(sys.argv[2])))
