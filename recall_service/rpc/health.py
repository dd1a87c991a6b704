"""Standard gRPC health, with an end: the library's Watch streams run for as long as their client likes.

A stream that never ends would hold up the graceful stop of the server until its grace runs out.
"""

import asyncio
from typing import Any

import grpc
from grpc_health.v1.health import aio as grpc_health_aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse


class HealthServicer(grpc_health_aio.HealthServicer):  # type: ignore[misc]
    """Says SERVING or NOT_SERVING for "" and each of `services`; NOT_SERVING at first and again when draining."""

    def __init__(self, *services: str) -> None:
        super().__init__()
        self._services = ("", *services)
        self._watches: set[asyncio.Task[None]] = set()
        self._ended = False

    async def set_serving(self, serving: bool) -> None:
        """Tell every watcher, for every service."""
        status = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        for service in self._services:
            await self.set(service, status)

    async def Watch(  # noqa: N802 - named by the contract
        self, request: HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Send the status and every change of it, until the client leaves or `end_watches` is called."""
        if self._ended:
            return
        watch = asyncio.create_task(super().Watch(request, context))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        try:
            await watch
        except asyncio.CancelledError:
            if not self._ended:
                raise

    def end_watches(self) -> None:
        """End every stream, and those still to come, with status OK."""
        self._ended = True
        for watch in self._watches:
            watch.cancel()
