"""recall.v1.AdminService: what is served and how busy it is, changes of what is live, and an end asked for from afar.

Knows neither registry nor engines nor catalogues: all that is done by whom it is handed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from item_catalog.updating.updates import ItemUpdates
from recall_service.errors import InvalidRequest, NotReady, Violation
from recall_service.rpc.admin_backend import AdminBackend
from recall_service.rpc.call import Call
from recall_service.rpc.convert import to_bundle_message
from recall_service.rpc.guard import CallGuard
from recall_service.rpc.item_updates import read_updates
from recall_service.rpc.server import RecallServer
from recall_service.rpc.shutdown import Shutdown
from recall_service.rpc.validation import read_message
from recall_service.serving.swapping.changes import CatalogState
from recall_service.stubs.recall.v1 import admin_pb2

Context = grpc.aio.ServicerContext[Any, Any]

logger = logging.getLogger(__name__)


class AdminServicer:
    """Answers for `served`. Requests and responses are bytes, as those of RecallServicer.

    Nothing live is changed before the server serves, or once it is told to end.
    """

    def __init__(self, served: RecallServer, backend: AdminBackend, shutdown: Shutdown, guard: CallGuard) -> None:
        self._served = served
        self._backend = backend
        self._shutdown = shutdown
        self._guard = guard

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
        """The methods by the names of the contract."""
        bodies = {
            "ListBundles": self._list_bundles,
            "Drain": self._drain,
            "LoadCatalog": self._load_catalog,
            "ActivateCatalog": self._activate_catalog,
            "RollbackCatalog": self._rollback_catalog,
            "ApplyItemUpdates": self._apply_item_updates,
            "ReloadBundle": self._reload_bundle,
        }
        methods = {name: partial(self._answer, name, body) for name, body in bodies.items()}
        return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}

    async def _answer(
        self, method: str, body: Callable[[bytes, Call], Awaitable[Message]], request: bytes, context: Context
    ) -> bytes:
        async def answer(call: Call) -> bytes:
            return (await body(request, call)).SerializeToString()

        return await self._guard.call(method, context, answer)

    async def _list_bundles(self, wire: bytes, call: Call) -> admin_pb2.ListBundlesResponse:
        del call  # says nothing of itself
        read_message(admin_pb2.ListBundlesRequest, wire)
        states = [
            admin_pb2.BundleState(
                info=to_bundle_message(state.info),
                waiting_requests=state.waiting,
                running_requests=state.running,
                stuck=state.stuck,
            )
            for state in self._backend.bundles()
        ]
        return admin_pb2.ListBundlesResponse(bundles=states, serving=self._served.lets_calls_in)

    async def _drain(self, wire: bytes, call: Call) -> admin_pb2.DrainResponse:
        read_message(admin_pb2.DrainRequest, wire)
        _log("this server to drain", call)
        self._shutdown.request()
        return admin_pb2.DrainResponse(at_most_seconds=self._served.drain_at_most_seconds)

    async def _load_catalog(self, wire: bytes, call: Call) -> admin_pb2.LoadCatalogResponse:
        request = read_message(admin_pb2.LoadCatalogRequest, wire)
        self._begin_change("a catalogue to be made ready", call)
        loaded = await self._backend.load_catalog(request.bundle, request.version)
        return admin_pb2.LoadCatalogResponse(catalog=_catalog_message(loaded))

    async def _activate_catalog(self, wire: bytes, call: Call) -> admin_pb2.ActivateCatalogResponse:
        request = read_message(admin_pb2.ActivateCatalogRequest, wire)
        if not request.version:
            raise InvalidRequest([Violation("version", "empty; name a version of the store")])
        self._begin_change("a catalogue to go live", call)
        swap = await self._backend.activate_catalog(request.bundle, request.version)
        return admin_pb2.ActivateCatalogResponse(
            catalog=_catalog_message(swap.catalog), previous_version=swap.previous_version
        )

    async def _rollback_catalog(self, wire: bytes, call: Call) -> admin_pb2.RollbackCatalogResponse:
        request = read_message(admin_pb2.RollbackCatalogRequest, wire)
        self._begin_change("a catalogue to be rolled back", call)
        swap = await self._backend.rollback_catalog(request.bundle)
        return admin_pb2.RollbackCatalogResponse(
            catalog=_catalog_message(swap.catalog), previous_version=swap.previous_version
        )

    async def _apply_item_updates(self, wire: bytes, call: Call) -> admin_pb2.ApplyItemUpdatesResponse:
        bundle, updates = await asyncio.to_thread(_bundle_and_updates, wire)  # megabytes: answers must not wait for it
        self._begin_change("items to be changed", call)
        done = await self._backend.apply_updates(bundle, updates)
        return admin_pb2.ApplyItemUpdatesResponse(
            catalog=_catalog_message(done.catalog),
            added=done.added,
            changed=done.changed,
            removed=done.removed,
            unknown_removals=done.unknown_removals,
        )

    async def _reload_bundle(self, wire: bytes, call: Call) -> admin_pb2.ReloadBundleResponse:
        request = read_message(admin_pb2.ReloadBundleRequest, wire)
        self._begin_change("a bundle to be reloaded", call)
        swap = await self._backend.reload_bundle(request.bundle)
        return admin_pb2.ReloadBundleResponse(info=to_bundle_message(swap.info), previous_version=swap.previous_version)

    def _begin_change(self, what: str, call: Call) -> None:
        if self._shutdown.requested.is_set() or not self._served.lets_calls_in:
            raise NotReady("this server is warming up or draining, and changes nothing; ask again once it serves")
        _log(what, call)


def _bundle_and_updates(wire: bytes) -> tuple[str, ItemUpdates]:
    request = read_message(admin_pb2.ApplyItemUpdatesRequest, wire)
    return request.bundle, read_updates(request)


def _log(what: str, call: Call) -> None:
    logger.info("an operator asks for %s: %s, request %s", what, call.client or "nameless", call.request_id)


def _catalog_message(state: CatalogState) -> admin_pb2.CatalogState:
    return admin_pb2.CatalogState(bundle=state.bundle, version=state.version, items=state.items, sids=state.sids)
