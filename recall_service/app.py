"""Puts the rooms together: settings in, a serving process out. The only module that knows all of them."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from prometheus_client import CollectorRegistry

from recall_service import __version__
from recall_service.config import Settings
from recall_service.engine.device import resolve_device
from recall_service.engine.memory import memory_states
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import SettingsError
from recall_service.heap import settled_heap
from recall_service.observability.metrics import Metrics
from recall_service.observability.metrics_endpoint import serve_metrics
from recall_service.protection import check_protection
from recall_service.request_log.files import RotatingFiles, open_directory
from recall_service.request_log.log import RequestLog
from recall_service.request_log.user_ids import user_id_rule
from recall_service.rpc.server import RecallServer
from recall_service.rpc.shutdown import Shutdown, done_before
from recall_service.servers import open_servers
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.cache.breaker import Breaker
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.redis_tier import RedisTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.hooks import Observer
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.swapping.operations import Operations
from recall_service.serving.watchdog import Watchdog
from recall_service.setting_values import host_and_port

if TYPE_CHECKING:
    from recall_service.observability.tracing import Tracing

logger = logging.getLogger(__name__)

_PAGE_LEN = 32


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a warmed server listens, and what it serves: bundle name -> (bundle version, catalogue version)."""

    address: str
    admin_address: str
    metrics_url: str
    bundles: dict[str, tuple[str, str]]


async def serve(settings: Settings, on_serving: Callable[[Serving], None]) -> None:
    """Load, warm up, serve until SIGTERM, SIGINT or an operator's Drain, and drain; a warm-up ends at such a word too.

    `on_serving` is called once health says SERVING.
    Raises SetupError when a bundle, a setting or an address is not fit to serve.
    """
    if settings.torch_threads:
        torch.set_num_threads(settings.torch_threads)
    check_protection(settings)
    with ExitStack() as closing:
        if (tracing := open_tracing(settings)) is not None:
            closing.callback(tracing.close)
        collectors = CollectorRegistry()
        metrics = Metrics(collectors, settings.scenes, tracing.trace_id if tracing else None)
        launch = Launch(engine_limits(settings), metrics, settings.filter_cache_bytes, resolve_device(settings.device))
        registry = open_registry(settings.bundles, settings.default_bundle, launch)
        shutdown = Shutdown()
        closing.enter_context(shutdown.listening())  # to the very end: a late signal must not cut short what closes
        closing.callback(registry.close)
        _describe(registry, metrics)
        endpoint = serve_metrics(collectors, settings.metrics_host, settings.metrics_port)
        closing.callback(endpoint.close)
        metrics_url = f"http://{host_and_port(settings.metrics_host, endpoint.port)}/metrics"
        operations = Operations(registry, launch)
        await _serve(settings, registry, operations, metrics, tracing, shutdown, metrics_url, on_serving)


async def _serve(
    settings: Settings,
    registry: Registry,
    operations: Operations,
    metrics: Metrics,
    tracing: "Tracing | None",
    shutdown: Shutdown,
    metrics_url: str,
    on_serving: Callable[[Serving], None],
) -> None:
    cache = open_cache(settings, metrics)
    request_log = open_request_log(settings, metrics)
    server, admin = open_servers(
        settings,
        Pipeline(registry, cache, metrics, tracing),
        operations,
        shutdown,
        metrics=metrics,
        tracing=tracing,
        request_log=request_log,
    )
    try:
        address = host_and_port(settings.host, await server.start())
        admin_address = host_and_port(settings.admin_host, await admin.start())
        if not await done_before(shutdown.requested, _warm_up(registry, metrics)):
            logger.info("told to end while warming up")
            return
        with settled_heap():
            await server.mark_serving()
            versions = {info.name: (info.version, info.catalog_version) for info in registry.infos}
            logger.info("serving %s on %s, metrics on %s", ", ".join(versions), address, metrics_url)
            if settings.catalog_watch_seconds:
                operations.watch(settings.catalog_watch_seconds)
            async with _watching(registry, settings.stuck_step_seconds, server):
                on_serving(Serving(address, admin_address, metrics_url, versions))
                await server.serve_until(shutdown)
        logger.info("the server has ended")
    finally:
        await server.stop()
        await admin.stop()
        await operations.close()
        if request_log is not None:
            await asyncio.to_thread(request_log.close)
        await cache.close()


def engine_limits(settings: Settings) -> EngineLimits:
    """The engine's share of the settings; how many levels a bundle has is filled in by the registry."""
    return EngineLimits(
        max_rows=settings.max_rows,
        max_queue_rows=settings.max_queue_rows,
        max_queue_tokens=settings.max_queue_tokens,
        priority_ageing_seconds=settings.priority_ageing_seconds,
        context_pages=-(-settings.max_context_tokens // _PAGE_LEN),
        page_len=_PAGE_LEN,
        prefix_cache=settings.prefix_cache,
        prefix_cache_bytes=settings.prefix_cache_bytes,
        max_prompt_tokens=settings.max_prompt_tokens,
    )


def open_tracing(settings: Settings) -> "Tracing | None":
    """Traces, where a collector is set. Raises SettingsError when what sends them is not installed."""
    if settings.otlp_endpoint is None:
        return None
    try:
        from recall_service.observability.tracing import open_tracing as open_traces  # not imported unless asked for
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"otlp_endpoint: {error.name} is not installed; pip install 'recall-service[tracing]', or leave it out"
        ) from None
    return open_traces(
        settings.otlp_endpoint, sample=settings.trace_sample, version=__version__, scenes=settings.scenes
    )


def open_cache(settings: Settings, observer: Observer) -> ResultCache:
    """The tier in this process, and Redis where a URL is set. Raises SettingsError when files of its TLS are no use."""
    time_to_live = TimeToLive(settings.cache_ttl_seconds, settings.cache_ttl_jitter, settings.cache_stale_seconds)
    local = LocalTier(max_bytes=settings.local_cache_bytes, time_to_live=time_to_live, observer=observer)
    if settings.redis_url is None:
        return ResultCache(local, None, observer)
    breaker = Breaker(
        failures=settings.redis_breaker_failures, open_seconds=settings.redis_breaker_open_seconds, observer=observer
    )
    redis = RedisTier(
        settings.redis_url.get_secret_value(),
        timeout_seconds=settings.redis_timeout_ms / 1000,
        pool_size=settings.redis_pool_size,
        key_prefix=settings.redis_key_prefix,
        time_to_live=time_to_live,
        breaker=breaker,
        observer=observer,
    )
    return ResultCache(local, redis, observer)


def open_request_log(settings: Settings, metrics: Metrics) -> RequestLog | None:
    """The log, where a directory is set. Raises SettingsError when files cannot be made in it."""
    if settings.request_log_dir is None:
        return None
    open_directory(settings.request_log_dir)
    files = RotatingFiles(
        settings.request_log_dir,
        max_file_bytes=settings.request_log_max_file_bytes,
        max_file_seconds=settings.request_log_max_file_seconds,
        max_files=settings.request_log_max_files,
    )
    logger.info(
        "request log in %s: a share of %g of all recalls, user ids: %s",
        settings.request_log_dir,
        settings.request_log_sample,
        settings.request_log_user_ids,
    )
    hash_key = settings.request_log_hash_key.get_secret_value().encode() if settings.request_log_hash_key else b""
    return RequestLog(
        files,
        share=settings.request_log_sample,
        rule=user_id_rule(settings.request_log_user_ids, hash_key),
        count=metrics.request_log_records,
    )


def _describe(registry: Registry, metrics: Metrics) -> None:
    metrics.build(__version__)
    metrics.watch_process()
    metrics.watch_load(registry.load)
    device = next(iter(registry)).bundle.model.device  # the one of all bundles
    if device.type == "cuda":
        metrics.watch_gpu_memory(partial(memory_states, device))


@asynccontextmanager
async def _watching(registry: Registry, stuck_step_seconds: float, server: RecallServer) -> AsyncIterator[None]:
    """While it lasts, the server's health follows the engines'."""
    watchdog = Watchdog(registry, stuck_step_seconds=stuck_step_seconds, on_change=server.set_healthy)
    watching = asyncio.create_task(watchdog.run())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _warm_up(registry: Registry, metrics: Metrics) -> None:
    for live in registry:
        started = time.perf_counter()
        await live.warm_up()
        metrics.warmed_up(live.info.name, time.perf_counter() - started)
