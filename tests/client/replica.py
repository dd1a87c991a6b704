"""A server that ends every attempt as it is told, and remembers when each came and what it carried."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc

from recall_service.client.policy import SERVICE
from recall_service.stubs.recall.v1 import recall_pb2


class Refusal(NamedTuple):
    """How an attempt fails; with no pushback, the client's own backoff decides when it tries again."""

    code: grpc.StatusCode
    pushback: str | None = None  # milliseconds


BUSY = Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED)
GONE = Refusal(grpc.StatusCode.UNAVAILABLE)


class Replica:
    """`ends` says what becomes of an attempt, from the number of those before it; None is an answer."""

    def __init__(self, ends: Callable[[int], Refusal | None] = lambda _: None, *, answer: bytes | None = None) -> None:
        self.ends = ends
        self.port = 0
        self.came: list[float] = []  # seconds of time.perf_counter
        self.metadata: list[dict[str, str]] = []
        self.remaining: list[float | None] = []
        self._answer = (
            recall_pb2.RecallResponse(request_id="answered").SerializeToString() if answer is None else answer
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def answer(self, request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        self.came.append(time.perf_counter())
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata() or ()})
        self.remaining.append(context.time_remaining())
        refusal = self.ends(len(self.came) - 1)
        if refusal is None:
            return self._answer
        trailers = () if refusal.pushback is None else (("grpc-retry-pushback-ms", refusal.pushback),)
        return await context.abort(refusal.code, "as it was told", trailers)


@asynccontextmanager
async def running_replica(
    replica: Replica, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[Replica]:
    """The replica on a free port, with TLS where there are credentials; stopped in the end."""
    server = grpc.aio.server()
    methods = ("Recall", "BatchRecall", "GetServingInfo")
    handlers = dict.fromkeys(methods, grpc.unary_unary_rpc_method_handler(replica.answer))
    server.add_registered_method_handlers(SERVICE, handlers)
    if credentials is None:
        replica.port = server.add_insecure_port("127.0.0.1:0")
    else:
        replica.port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield replica
    finally:
        await server.stop(None)
