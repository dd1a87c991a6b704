"""A server that answers every Recall with the same ready bytes, in its own process: `python -m benchmarks.replay_echo`.

Writes its port and serves until it is ended. What it costs is gRPC alone, so a replay against it shows the replay.
"""

import asyncio
from typing import Any

import grpc

from recall_service.stubs.recall.v1 import recall_pb2

NUM_ITEMS = 50


async def main() -> None:
    """Serve on a free port of the loopback interface."""
    info = recall_pb2.GetServingInfoResponse(server_version="echo", bundles=[recall_pb2.BundleInfo(name="echo")])
    server = grpc.aio.server()
    server.add_registered_method_handlers(
        "recall.v1.RecallService", {"Recall": _always(answer()), "GetServingInfo": _always(info.SerializeToString())}
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


def answer() -> bytes:
    """An answer of as many items as callers ask for in practice."""
    response = recall_pb2.RecallResponse(
        served_from=recall_pb2.SERVED_FROM_ENGINE,
        completeness=recall_pb2.Completeness(state=recall_pb2.COMPLETENESS_STATE_COMPLETE),
        bundle_version="b1",
        catalog_version="c1",
    )
    for rank in range(NUM_ITEMS):
        response.items.add(item_id=f"B{rank:09d}", score=-1.0 - rank / 7, sid=(rank, 1, 2))
    return response.SerializeToString()


def _always(payload: bytes) -> Any:
    async def handle(request: bytes, context: Any) -> bytes:
        del request, context
        return payload

    return grpc.unary_unary_rpc_method_handler(handle)  # no serializers: bytes go through as they are


if __name__ == "__main__":
    asyncio.run(main())
