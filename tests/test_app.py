"""The rooms put together in this process: what a server does from settings to SIGTERM."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from safetensors.torch import load_file, save_file

from recall_service.app import Serving, engine_limits, serve
from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.config import Settings
from recall_service.errors import SetupError
from recall_service.serving.bundles.bundle import load_bundle
from tests.serving.bundles import write_bundle
from tests.serving.stores import shop_catalog, write_store_bundle
from tests.serving_here import small_settings


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("engine-")]


async def while_serving(resolved: Settings, visit: Callable[[Serving], Any]) -> None:
    """Serve, let `visit` look at it, send SIGTERM, and wait for the end."""
    started: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(resolved, started.set_result))
    await asyncio.wait([started, server], return_when=asyncio.FIRST_COMPLETED)
    if server.done():  # a signal would end the tests
        await server
    try:
        await visit(started.result())
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(server, 10)


async def test_from_settings_to_sigterm(directory: Path) -> None:
    bundle = load_bundle(directory)
    addresses: list[str] = []

    async def visit(serving: Serving) -> None:
        addresses.append(serving.address)
        assert serving.bundles == {"tiny": (bundle.version, bundle.catalog.version)}
        async with grpc.aio.insecure_channel(serving.address) as channel:
            health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        async with AsyncRecallClient(serving.address) as client:
            results = [await client.recall(history=["item-001", "gone"], scene="feed") for _ in range(2)]
        assert [result.served_from for result in results] == ["ENGINE", "LOCAL_CACHE"]
        assert results[0].items == results[1].items
        metrics = await asyncio.to_thread(lambda: urlopen(serving.metrics_url).read().decode())
        for line in (
            f'recall_bundle_info{{bundle="tiny",score_space="VOCABULARY",version="{bundle.version}"}} 1.0',
            f'recall_catalog_info{{bundle="tiny",version="{bundle.catalog.version}"}} 1.0',
            'recall_request_duration_seconds_count{outcome="ok",scene="feed"} 1.0',
            'recall_request_duration_seconds_count{outcome="cached",scene="feed"} 1.0',
            "recall_queue_age_seconds 0.0",
            'recall_beam_rows{state="free"} 64.0',
            'recall_context_pages{state="used"} 0.0',
            "recall_unknown_history_items_total 2.0",
            "recall_ready 1.0",
        ):
            assert f"{line}\n" in metrics
        for start in (
            'recall_warmup_seconds{bundle="tiny"}',
            'recall_catalog_loaded_timestamp_seconds{bundle="tiny"}',
            "process_cpu_seconds_total",
            "python_gc_collections_total",
        ):
            assert f"\n{start}" in metrics

    await while_serving(small_settings(directory), visit)
    assert engine_threads() == []
    with socket.socket() as probe:
        host, port = addresses[0].split(":")
        assert probe.connect_ex((host, int(port))) != 0


async def test_what_becomes_current_in_a_store_is_followed(tmp_path: Path) -> None:
    old, new = shop_catalog(), shop_catalog(100)
    store = write_store_bundle(tmp_path / "tiny", old, new)
    history = ["item-001", "item-101"]  # one of each

    async def visit(serving: Serving) -> None:
        async with AsyncRecallClient(serving.address) as client:
            assert (await client.recall(history=history)).catalog_version == old.version
            await asyncio.to_thread(store.activate, new.version)
            async with asyncio.timeout(5):
                while (await client.recall(history=history)).catalog_version != new.version:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            answer = await client.recall(history=history)
            info = (await client.serving_info()).bundles[0]
        assert all(item.item_id.startswith("item-1") for item in answer.items)
        assert (info.catalog_version, [attribute.name for attribute in info.attributes]) == (new.version, ["kind"])
        metrics = await asyncio.to_thread(lambda: urlopen(serving.metrics_url).read().decode())
        assert f'recall_catalog_info{{bundle="tiny",version="{new.version}"}} 1.0\n' in metrics
        assert old.version not in metrics
        assert 'recall_reloads_total{kind="catalog",result="ok"} 1.0\n' in metrics

    await while_serving(small_settings(tmp_path / "tiny", catalog_watch_seconds=0.01), visit)


async def test_two_bundles_and_a_default(directory: Path, tmp_path: Path) -> None:
    other = write_bundle(tmp_path / "other", seed=2, first_item=100, bundle={"name": "other"})

    async def visit(serving: Serving) -> None:
        async with AsyncRecallClient(serving.address) as client:
            by_default = await client.recall(history=["item-101"])
            by_name = await client.recall(history=["item-001"], bundle="tiny")
            with pytest.raises(RecallClientError, match="give one of other, tiny"):
                await client.recall(history=["item-001"], bundle="third")
        assert (by_default.bundle, by_name.bundle) == ("other", "tiny")
        assert list(serving.bundles) == ["other", "tiny"]

    await while_serving(small_settings(directory, other, default_bundle="other"), visit)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"default_bundle": "nobody"}, "default_bundle: 'nobody' is none of tiny"),
        ({"max_rows": 63}, "max_rows is 63"),
        ({"bundles": ()}, "bundles: none given"),
    ],
    ids=["unknown default", "too few rows", "no bundles"],
)
async def test_settings_that_do_not_fit_the_bundle(directory: Path, changes: dict[str, Any], message: str) -> None:
    resolved = small_settings(directory).model_copy(update=changes)
    with pytest.raises(SetupError, match=message):
        await serve(resolved, lambda _: pytest.fail("it serves"))
    assert engine_threads() == []


@pytest.mark.parametrize("name", ["port", "metrics_port", "admin_port"])
async def test_a_port_that_is_taken(directory: Path, name: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"cannot listen on 127.0.0.1:{port}"):
            await serve(small_settings(directory, **{name: port}), lambda _: pytest.fail("it serves"))
    assert engine_threads() == []


async def test_a_model_of_nan_never_serves(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path / "broken", bundle={"name": "broken"})
    weights = directory / "model" / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.norm.weight"].fill_(torch.nan)
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(SetupError, match=r"bundle broken: its first search failed: the model's logits hold NaN"):
        await serve(small_settings(directory), lambda _: pytest.fail("it serves"))
    assert engine_threads() == []


def test_context_pages_hold_what_the_settings_promise(directory: Path) -> None:
    """Rounded up to whole pages, never down."""
    limits = engine_limits(small_settings(directory, max_context_tokens=641))
    assert limits.context_pages * limits.page_len >= 641 > (limits.context_pages - 1) * limits.page_len
    assert (limits.max_rows, limits.max_prompt_tokens) == (64, 64)


def test_the_queue_is_as_long_and_ages_as_the_settings_say(directory: Path) -> None:
    chosen = small_settings(directory, max_queue_rows=100, max_queue_tokens=900, priority_ageing_seconds=0.5)
    limits = engine_limits(chosen)
    assert (limits.max_queue_rows, limits.max_queue_tokens, limits.priority_ageing_seconds) == (100, 900, 0.5)


def test_the_prefix_cache_is_on_unless_a_setting_says_otherwise(directory: Path) -> None:
    assert engine_limits(small_settings(directory)).prefix_cache
    limits = engine_limits(small_settings(directory, prefix_cache=False, prefix_cache_bytes=1 << 20))
    assert (limits.prefix_cache, limits.prefix_cache_bytes) == (False, 1 << 20)
