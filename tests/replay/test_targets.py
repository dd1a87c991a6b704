"""A server and a bundle as targets: they answer alike, and say what is wrong with them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from recall_service.config import Settings
from recall_service.errors import ReplayError, SetupError
from recall_service.replay.asked import Asked
from recall_service.replay.bundle_target import BundleTarget
from recall_service.replay.grpc_target import GrpcTarget
from recall_service.replay.target import Reply
from recall_service.rpc.server import RecallServer
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.hooks import NullObserver
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.query import BundleInfo
from recall_service.stubs.recall.v1 import recall_pb2
from tests.replay.questions import make_asked
from tests.rpc.fake_backend import FakeBackend, running
from tests.serving.bundles import FILTER_CACHE_BYTES, LIMITS, write_bundle


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def settings(directory: Path) -> Settings:
    return Settings(bundles=(directory,), max_rows=128, max_prompt_tokens=120, max_context_tokens=640)


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[str]:
    """The address of a server of that bundle, in this process."""
    observer = NullObserver()
    registry = open_registry([directory], "", Launch(LIMITS, observer, FILTER_CACHE_BYTES))
    no_tier = LocalTier(max_bytes=0, time_to_live=TimeToLive(1.0, 0.0), observer=observer)
    server = RecallServer(Pipeline(registry, ResultCache(no_tier, None, observer), observer), "127.0.0.1:0")
    port = await server.start()
    await server.mark_serving()
    yield f"127.0.0.1:{port}"
    await server.stop()
    registry.close()


async def ask_all(target: Any, questions: Sequence[Asked]) -> tuple[str, list[Reply]]:
    described = await target.open()
    try:
        return described, [await target.ask(asked, 10.0) for asked in questions]
    finally:
        await target.close()


def questions() -> list[Asked]:
    """Good ones, short ones, and some of every kind that is refused."""
    good = [make_asked(index, history=[f"item-{index:03}", "gone", f"item-{index + 1:03}"]) for index in range(5)]
    wide, narrow, proven, foreign, empty, prompt = (make_asked(index, history=["item-001"]) for index in range(5, 11))
    wide.request.beam_width = 65
    narrow.request.beam_width, narrow.request.num_items = 2, 9
    proven.request.search_mode = recall_pb2.SEARCH_MODE_PROVEN
    foreign.request.bundle = "nobody"
    empty.request.ClearField("history")
    prompt.request.prompt.token_ids.append(9_999)
    return [*good, wide, narrow, proven, foreign, empty, prompt, make_asked(11, history=["gone"]), *narrowed()]


def narrowed() -> list[Asked]:
    """With filters and exclusions: answered in full, short of items, and refused."""
    full, short, refused = (make_asked(index, history=["item-001"]) for index in range(12, 15))
    full.request.exclude_item_ids.extend(["item-002", "gone"])
    full.request.exclude_history = True
    short.request.num_items, short.request.beam_width = 60, 64
    for asked, attribute in ((full, "category"), (short, "category"), (refused, "brand")):
        asked.request.filter.predicates.add(attribute=attribute, not_in={"values": [{"text": "shoes"}]})
    return [full, short, refused]


async def test_a_bundle_in_this_process_answers_as_its_server_does(directory: Path) -> None:
    async with served(directory) as address:
        by_server, served_replies = await ask_all(GrpcTarget(address, num_channels=3), questions())
    in_process, replies = await ask_all(BundleTarget(settings(directory)), questions())
    assert replies == served_replies
    assert [reply.code for reply in replies] == [
        *["OK"] * 5,
        "INVALID_ARGUMENT",
        "OK",
        "OK",
        "NOT_FOUND",
        "INVALID_ARGUMENT",
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "OK",
        "OK",
        "INVALID_ARGUMENT",
    ]
    short = replies[6].answer
    assert short is not None
    assert short.short_reason == "BEAM_TOO_NARROW"
    assert 0 < len(short.item_ids) < 9
    assert replies[11].error_reason == "HISTORY_EMPTY"
    full, part = replies[12].answer, replies[13].answer
    assert full is not None
    assert part is not None
    assert (full.short_reason, part.short_reason) == ("", "FILTER_TOO_NARROW")
    assert not {"item-001", "item-002"} & {*full.item_ids}
    assert by_server.startswith(f"{address}, recall-service ")
    assert in_process.startswith("in this process: tiny ")
    assert by_server.partition(": ")[2] == in_process.partition(": ")[2]


async def test_a_deadline_that_passes_is_a_reply() -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend) as server:
        target = GrpcTarget(server.address)
        await target.open()
        assert await target.ask(make_asked(), 0.05) == Reply("DEADLINE_EXCEEDED")
        await target.close()


async def test_giving_a_call_up_reaches_the_server() -> None:
    backend = FakeBackend(gate=asyncio.Event())
    async with running(backend) as server:
        target = GrpcTarget(server.address)
        await target.open()
        asking = asyncio.create_task(target.ask(make_asked(), 60.0))
        await asyncio.wait_for(backend.entered.wait(), 5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(backend.left.wait(), 5)
        await target.close()
    assert backend.num_cancelled == 1


async def test_a_server_that_is_gone_is_nobody() -> None:
    async with running(FakeBackend()) as server:
        target = GrpcTarget(server.address)
        await target.open()
        assert not (await target.ask(make_asked(), 5.0)).is_from_nobody
    reply = await target.ask(make_asked(), 5.0)
    await target.close()
    assert (reply.code, reply.is_from_nobody) == ("UNAVAILABLE", True)


class Empty(FakeBackend):
    def bundles(self) -> Sequence[BundleInfo]:
        return ()


async def why_unfit(address: str) -> str:
    with pytest.raises(ReplayError) as raised:
        await GrpcTarget(address).open()
    assert str(raised.value).startswith(f"{address}: ")
    return str(raised.value)


async def test_nobody_is_there() -> None:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "start the server, or correct the address" in await why_unfit(address)


async def test_a_server_of_another_kind() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    assert "speaks gRPC, but not recall.v1: another version of the API" in await why_unfit(f"127.0.0.1:{port}")
    await server.stop(None)


async def test_a_server_whose_answer_is_of_another_contract() -> None:
    async def handle(request: bytes, context: Any) -> bytes:
        return b"\xff\xff"

    server = grpc.aio.server()
    handlers = dict.fromkeys(("GetServingInfo", "Recall"), grpc.unary_unary_rpc_method_handler(handle))
    server.add_registered_method_handlers("recall.v1.RecallService", handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    assert "in another contract's words" in await why_unfit(f"127.0.0.1:{port}")
    await server.stop(None)


async def test_an_answer_of_another_contract_is_a_reply() -> None:
    async def handle(request: bytes, context: Any) -> bytes:
        return b"" if request else info.SerializeToString()

    async def garbage(request: bytes, context: Any) -> bytes:
        return b"\xff\xff"

    info = recall_pb2.GetServingInfoResponse(bundles=[recall_pb2.BundleInfo(name="a")])
    server = grpc.aio.server()
    methods = {"GetServingInfo": handle, "Recall": garbage}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server.add_registered_method_handlers("recall.v1.RecallService", handlers)
    target = GrpcTarget(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    await target.open()
    assert await target.ask(make_asked(), 5.0) == Reply("INTERNAL", "UNREADABLE_ANSWER")
    await target.close()
    await server.stop(None)


async def test_a_server_that_is_not_ready_and_one_without_bundles() -> None:
    async with running(FakeBackend(), serving=False) as server:
        assert "refuses to say what it serves: " in await why_unfit(server.address)
    async with running(Empty()) as server:
        assert "serves no bundle" in await why_unfit(server.address)


async def test_a_bundle_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"bundle\.toml: no such file"):
        await BundleTarget(settings(tmp_path)).open()
