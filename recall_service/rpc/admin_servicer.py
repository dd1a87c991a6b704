"""recall.v1.AdminService: what is served and how busy it is, and an end asked for from afar.

Knows neither registry nor engines: how they are is told by whom it is handed.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import grpc

from recall_service.rpc.call import Call
from recall_service.rpc.convert import to_bundle_message
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.server import RecallServer
from recall_service.rpc.shutdown import Shutdown
from recall_service.rpc.validation import read_message
from recall_service.serving.query import BundleInfo
from recall_service.stubs.recall.v1 import admin_pb2

Context = grpc.aio.ServicerContext[Any, Any]

logger = logging.getLogger(__name__)


class BundleState(NamedTuple):
    """One live bundle. waiting, running: requests in its engine. stuck: the engine is of no use."""

    info: BundleInfo
    waiting: int
    running: int
    stuck: bool


class AdminServicer:
    """Answers for `served`. Requests and responses are bytes, as those of RecallServicer."""

    def __init__(
        self,
        served: RecallServer,
        bundles: Callable[[], Sequence[BundleState]],
        shutdown: Shutdown,
        guard: CallGuard,
    ) -> None:
        self._served = served
        self._bundles = bundles
        self._shutdown = shutdown
        self._guard = guard

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
        """The methods by the names of the contract."""
        methods = {"ListBundles": self.list_bundles, "Drain": self.drain}
        return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}

    async def list_bundles(self, request: bytes, context: Context) -> bytes:
        """What is served here, and in what state."""
        return await self._guard.call("ListBundles", context, partial(self._list_bundles, request))

    async def drain(self, request: bytes, context: Context) -> bytes:
        """Ask for the end; does not wait for it."""
        return await self._guard.call("Drain", context, partial(self._drain, request))

    async def _list_bundles(self, wire: bytes, call: Call) -> bytes:
        del call  # says nothing of itself
        read_message(admin_pb2.ListBundlesRequest, wire)
        states = [
            admin_pb2.BundleState(
                info=to_bundle_message(state.info),
                waiting_requests=state.waiting,
                running_requests=state.running,
                stuck=state.stuck,
            )
            for state in self._bundles()
        ]
        return admin_pb2.ListBundlesResponse(bundles=states, serving=self._served.lets_calls_in).SerializeToString()

    async def _drain(self, wire: bytes, call: Call) -> bytes:
        read_message(admin_pb2.DrainRequest, wire)
        logger.info("an operator asks this server to drain: %s, request %s", call.client or "nameless", call.request_id)
        self._shutdown.request()
        return admin_pb2.DrainResponse(at_most_seconds=self._served.drain_at_most_seconds).SerializeToString()
