"""What operators ask of a replica, and what it does."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from recall_service.client import RecallClientError
from recall_service.errors import ChangeRefused, RecallError, SetupError, UnknownVersion
from recall_service.rpc.admin_server import SERVICE_NAME, AdminServer
from recall_service.rpc.authentication import Authentication
from recall_service.rpc.item_updates import MAX_UPDATES
from recall_service.rpc.shutdown import Shutdown
from recall_service.serving.swapping.changes import BundleState, BundleSwap, CatalogState, CatalogSwap, UpdatesApplied
from recall_service.stubs.recall.v1 import admin_pb2, admin_pb2_grpc
from recall_service.tokens import make_token
from tests.rpc.fake_backend import MAIN, SMALL, FakeBackend, RememberingObserver, Running, by_history, running

RANKER, OPERATOR = make_token("ranker", "recall"), make_token("operator", "admin")
STATES = [BundleState(MAIN, waiting=3, running=2, stuck=False), BundleState(SMALL, waiting=0, running=1, stuck=True)]
SERVING = health_pb2.HealthCheckResponse.SERVING
METHODS = [
    "ListBundles",
    "Drain",
    "LoadCatalog",
    "ActivateCatalog",
    "RollbackCatalog",
    "ApplyItemUpdates",
    "ReloadBundle",
]
CHANGES = METHODS[2:]
CATALOG = CatalogState("main", "c9", 1_001, 900)
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
WELL_FORMED = {
    "ActivateCatalog": admin_pb2.ActivateCatalogRequest(version="c9").SerializeToString(),
    "ApplyItemUpdates": admin_pb2.ApplyItemUpdatesRequest(removals=["old"]).SerializeToString(),
}


class FakeAdminBackend:
    """Does nothing but remember what it was asked, unless told to raise `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[Any, ...]] = []

    def bundles(self) -> Sequence[BundleState]:
        if self.error is not None:
            raise self.error
        return STATES

    async def load_catalog(self, bundle: str, version: str) -> CatalogState:
        self._remember("load", bundle, version)
        return CATALOG

    async def activate_catalog(self, bundle: str, version: str) -> CatalogSwap:
        self._remember("activate", bundle, version)
        return CatalogSwap(CATALOG, "c8")

    async def rollback_catalog(self, bundle: str) -> CatalogSwap:
        self._remember("rollback", bundle)
        return CatalogSwap(CATALOG, "c8")

    async def apply_updates(self, bundle: str, updates: ItemUpdates) -> UpdatesApplied:
        self._remember("apply", bundle, updates)
        return UpdatesApplied(CATALOG, added=1, changed=2, removed=3, unknown_removals=4)

    async def reload_bundle(self, bundle: str) -> BundleSwap:
        self._remember("reload", bundle)
        return BundleSwap(MAIN, "m0")

    def _remember(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error


class Administered(NamedTuple):
    served: Running
    backend: FakeAdminBackend
    address: str
    channel: grpc.aio.Channel
    stub: Any
    shutdown: Shutdown
    observer: RememberingObserver


@asynccontextmanager
async def administered(
    *, serving: bool = True, error: Exception | None = None, **settings: Any
) -> AsyncIterator[Administered]:
    observer, shutdown, backend = RememberingObserver(), Shutdown(), FakeAdminBackend(error)
    async with running(FakeBackend(), serving=serving, drain_notice_seconds=0.5, drain_seconds=7) as served:
        admin = AdminServer(served.server, "127.0.0.1:0", backend, shutdown, observer=observer, **settings)
        address = f"127.0.0.1:{await admin.start()}"
        async with grpc.aio.insecure_channel(address) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            yield Administered(served, backend, address, channel, stub, shutdown, observer)
        await admin.stop()


def bearer(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


@pytest.mark.parametrize("serving", [True, False], ids=["serving", "warming up"])
async def test_bundles_are_listed_with_their_state(serving: bool) -> None:
    async with administered(serving=serving) as admin:
        listed = await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
    assert listed.serving is serving
    assert [
        (state.info.name, state.waiting_requests, state.running_requests, state.stuck) for state in listed.bundles
    ] == [("main", 3, 2, False), ("small", 0, 1, True)]


async def test_drain_asks_for_the_end_and_does_not_wait_for_it() -> None:
    async with administered() as admin:
        ended = asyncio.create_task(admin.served.server.serve_until(admin.shutdown))
        answers = [await admin.stub.Drain(admin_pb2.DrainRequest()) for _ in range(2)]
        assert [answer.at_most_seconds for answer in answers] == [0.5 + 0.25 + 7 + 0.5] * 2
        await admin.served.stub.Recall(by_history())  # let in while balancers learn of it
        listed = await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
        assert listed.serving
        await asyncio.wait_for(ended, 5)
        listed = await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
        assert not listed.serving
        assert not admin.shutdown.hurried.is_set()  # to ask twice is not to be in a hurry


@pytest.mark.parametrize(
    ("metadata", "code", "reason"),
    [
        ((), "UNAUTHENTICATED", "unauthenticated"),
        (bearer("wrong"), "UNAUTHENTICATED", "unauthenticated"),
        (bearer(RANKER.token), "PERMISSION_DENIED", "permission_denied"),
    ],
    ids=["no token", "wrong token", "wrong right"],
)
@pytest.mark.parametrize("method", METHODS)
async def test_who_may_not_changes_nothing(method: str, metadata: Any, code: str, reason: str) -> None:
    authentication = Authentication([RANKER.entry, OPERATOR.entry])
    async with administered(authentication=authentication) as admin:
        call = admin.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff", metadata=metadata)
        assert caught.value.code().name == code
        assert not admin.shutdown.requested.is_set()
        assert admin.backend.asked == []
        assert admin.observer.rejections == [reason]
        await call(WELL_FORMED.get(method, b""), metadata=bearer(OPERATOR.token))
        assert admin.shutdown.requested.is_set() is (method == "Drain")
        assert len(admin.backend.asked) == (method in CHANGES)


@pytest.mark.parametrize("method", METHODS)
async def test_what_is_no_message_is_refused(method: str) -> None:
    async with administered() as admin:
        with pytest.raises(grpc.aio.AioRpcError, match=rf"request: 1 bytes that are no recall\.v1\.{method}Request"):
            await admin.channel.unary_unary(f"/{SERVICE_NAME}/{method}")(b"\xff")
        assert not admin.shutdown.requested.is_set()
        assert admin.backend.asked == []


async def test_a_catalogue_is_loaded_activated_and_rolled_back() -> None:
    async with administered() as admin:
        loaded = await admin.stub.LoadCatalog(admin_pb2.LoadCatalogRequest(bundle="small"))
        activated = await admin.stub.ActivateCatalog(admin_pb2.ActivateCatalogRequest(bundle="small", version="c9"))
        rolled_back = await admin.stub.RollbackCatalog(admin_pb2.RollbackCatalogRequest())
    state = admin_pb2.CatalogState(bundle="main", version="c9", items=1_001, sids=900)
    assert loaded == admin_pb2.LoadCatalogResponse(catalog=state)
    assert activated == admin_pb2.ActivateCatalogResponse(catalog=state, previous_version="c8")
    assert rolled_back == admin_pb2.RollbackCatalogResponse(catalog=state, previous_version="c8")
    assert admin.backend.asked == [("load", "small", ""), ("activate", "small", "c9"), ("rollback", "")]


async def test_a_bundle_is_reloaded() -> None:
    async with administered() as admin:
        reloaded = await admin.stub.ReloadBundle(admin_pb2.ReloadBundleRequest(bundle="main"))
    assert (reloaded.info.name, reloaded.info.version, reloaded.previous_version) == ("main", "m1", "m0")
    assert admin.backend.asked == [("reload", "main")]


async def test_updates_arrive_as_they_were_sent() -> None:
    request = admin_pb2.ApplyItemUpdatesRequest(bundle="small", removals=["old", "older"])
    moved = request.upserts.add(item_id="moved", sid=[1, 0, 2], cleared_attributes=["brand"])
    moved.attributes["category"].text = "shoes"
    moved.attributes["price"].number = 1.0
    moved.attributes["published"].integer = 0
    moved.attributes["in_stock"].boolean = False
    request.upserts.add(item_id="touched")
    async with administered() as admin:
        answer = await admin.stub.ApplyItemUpdates(request)
    ((_, bundle, updates),) = admin.backend.asked
    attributes = {"category": "shoes", "price": 1.0, "published": 0, "in_stock": False, "brand": None}
    upserts = (ItemUpsert("moved", (1, 0, 2), attributes), ItemUpsert("touched", None, {}))
    assert (bundle, updates) == ("small", ItemUpdates(upserts, ("old", "older")))
    assert [type(updates.upserts[0].attributes[name]) for name in ("price", "published", "in_stock")] == [
        float,
        int,
        bool,
    ]
    assert (answer.catalog.version, answer.added, answer.changed, answer.removed, answer.unknown_removals) == (
        *("c9", 1, 2, 3),
        4,
    )


async def test_everything_wrong_with_updates_is_said_at_once_and_nothing_is_done() -> None:
    request = admin_pb2.ApplyItemUpdatesRequest(removals=["é" * 129, ""])
    request.upserts.add(item_id="", sid=range(9))
    bad = request.upserts.add(item_id="x", cleared_attributes=["price", ""])
    bad.attributes["price"].number = 1.0
    bad.attributes["category"].text = ""
    _ = bad.attributes["brand"]  # no value at all
    async with administered() as admin:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin.stub.ApplyItemUpdates(request)
    violations = dict(RecallClientError.of_call(caught.value).violations)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert violations == {
        "upserts[0].item_id": "empty; give 1 to 256 bytes",
        "upserts[0].sid": "9 codes; give one for each level, 8 at most",
        "upserts[1].attributes['category']": "empty; give 1 to 256 bytes",
        "upserts[1].attributes['brand']": (
            "no value; give text, integer, number or boolean, or name it in cleared_attributes"
        ),
        "upserts[1].cleared_attributes[0]": "'price' is also given a value; do one of both",
        "upserts[1].cleared_attributes[1]": "empty; give 1 to 64 bytes",
        "removals[0]": "258 bytes; give 1 to 256",
        "removals[1]": "empty; give 1 to 256 bytes",
    }
    assert admin.backend.asked == []


@pytest.mark.parametrize(
    ("method", "request_message", "field"),
    [
        ("ActivateCatalog", admin_pb2.ActivateCatalogRequest(), "version: empty; name a version"),
        ("ApplyItemUpdates", admin_pb2.ApplyItemUpdatesRequest(), "upserts: no upserts and no removals"),
        (
            "ApplyItemUpdates",
            admin_pb2.ApplyItemUpdatesRequest(removals=["x"] * (MAX_UPDATES + 1)),
            "upserts: 10,001 upserts and removals; give at most 10,000",
        ),
    ],
    ids=["no version", "no updates", "too many updates"],
)
async def test_a_change_that_says_too_little_or_too_much(method: str, request_message: Any, field: str) -> None:
    async with administered() as admin:
        with pytest.raises(grpc.aio.AioRpcError, match=field):
            await getattr(admin.stub, method)(request_message)
    assert admin.backend.asked == []


async def test_as_many_updates_as_are_allowed_fit_into_one_message() -> None:
    request = admin_pb2.ApplyItemUpdatesRequest()
    upsert = request.upserts.add(item_id="0f8fad5b-d9cb-469f-a165-70867728950e", sid=[8_191, 8_191, 8_191])
    upsert.attributes["category"].text = "a category of usual length"
    upsert.attributes["price"].number = 19.99
    request.upserts.extend([upsert] * (MAX_UPDATES - 1))
    assert request.ByteSize() > 1_000_000
    async with administered() as admin:
        assert (await admin.stub.ApplyItemUpdates(request)).added == 1
    assert len(admin.backend.asked[0][2].upserts) == MAX_UPDATES


@pytest.mark.parametrize(
    ("error", "code"),
    [(ChangeRefused("no store; publish"), "FAILED_PRECONDITION"), (UnknownVersion("version: 'x'"), "NOT_FOUND")],
)
async def test_a_change_that_cannot_be_made_says_why(error: RecallError, code: str) -> None:
    async with administered(error=error) as admin:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin.stub.RollbackCatalog(admin_pb2.RollbackCatalogRequest())
    failure = RecallClientError.of_call(caught.value)
    assert (failure.code.name, failure.reason, caught.value.details()) == (code, error.reason, str(error))


@pytest.mark.parametrize("method", CHANGES)
async def test_nothing_is_changed_before_the_server_serves_or_once_it_is_to_end(method: str) -> None:
    async with administered(serving=False) as admin:
        call = admin.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        with pytest.raises(grpc.aio.AioRpcError, match="warming up or draining") as caught:
            await call(WELL_FORMED.get(method, b""))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await admin.served.server.mark_serving()
        await call(WELL_FORMED.get(method, b""))
        assert len(admin.backend.asked) == 1
        await admin.stub.Drain(admin_pb2.DrainRequest())
        with pytest.raises(grpc.aio.AioRpcError, match="warming up or draining"):
            await call(WELL_FORMED.get(method, b""))
        assert len(admin.backend.asked) == 1


async def test_a_fault_inside_says_nothing_of_the_inside() -> None:
    async with administered(error=ValueError("a secret of the inside")) as admin:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin.stub.ListBundles(admin_pb2.ListBundlesRequest())
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)


async def test_its_health_is_that_of_the_server_it_looks_after() -> None:
    async with administered(serving=False) as admin:
        stub = health_pb2_grpc.HealthStub(admin.channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING
        await admin.served.server.mark_serving()
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == SERVING
        await admin.served.server.set_healthy(False)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == NOT_SERVING


async def test_neither_server_answers_for_the_other() -> None:
    async with administered() as admin:
        for channel, method in (
            (admin.channel, "/recall.v1.RecallService/Recall"),
            (admin.served.channel, f"/{SERVICE_NAME}/Drain"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(method)(b"")
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not admin.shutdown.requested.is_set()


async def test_reflection_tells_of_it() -> None:
    async with administered() as admin:
        stub = reflection_pb2_grpc.ServerReflectionStub(admin.channel)
        asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE_NAME)]
        (answer,) = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]
    assert admin_pb2.DESCRIPTOR.serialized_pb in answer.file_descriptor_response.file_descriptor_proto


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with administered() as admin:
        second = AdminServer(admin.served.server, admin.address, admin.backend, Shutdown())
        with pytest.raises(SetupError, match=f"cannot listen on {admin.address}; free the port"):
            await second.start()
