"""Puts the rooms together: settings in, a serving process out. The only module that knows all of them."""

import asyncio
import logging
import time
from collections.abc import Callable
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
from recall_service.observability.call_log import CallLog
from recall_service.observability.metrics import Metrics
from recall_service.observability.metrics_endpoint import serve_metrics
from recall_service.request_log.files import RotatingFiles, open_directory
from recall_service.request_log.log import RequestLog
from recall_service.request_log.user_ids import user_id_rule
from recall_service.rpc.server import RecallServer
from recall_service.serving.breaker import Breaker
from recall_service.serving.hooks import Observer
from recall_service.serving.local_tier import LocalTier
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.redis_tier import RedisTier
from recall_service.serving.registry import Registry, open_registry
from recall_service.serving.result_cache import ResultCache
from recall_service.serving.time_to_live import TimeToLive

if TYPE_CHECKING:
    from recall_service.observability.tracing import Tracing

logger = logging.getLogger(__name__)

_PAGE_LEN = 32


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a warmed server listens, and what it serves: bundle name -> (bundle version, catalogue version)."""

    address: str
    metrics_url: str
    bundles: dict[str, tuple[str, str]]


async def serve(settings: Settings, on_serving: Callable[[Serving], None]) -> None:
    """Load, warm up, serve until SIGTERM or SIGINT, drain. `on_serving` is called once health says SERVING.

    Raises SetupError when a bundle, a setting or an address is not fit to serve.
    """
    if settings.torch_threads:
        torch.set_num_threads(settings.torch_threads)
    tracing = open_tracing(settings)
    collectors = CollectorRegistry()
    metrics = Metrics(collectors, settings.scenes, tracing.trace_id if tracing else None)
    registry = open_registry(
        settings.bundles, settings.default_bundle, engine_limits(settings), metrics, resolve_device(settings.device)
    )
    try:
        _describe(registry, metrics)
        endpoint = serve_metrics(collectors, settings.metrics_host, settings.metrics_port)
        try:
            metrics_url = f"http://{settings.metrics_host}:{endpoint.port}"
            await _serve(settings, registry, metrics, tracing, metrics_url, on_serving)
        finally:
            endpoint.close()
    finally:
        registry.close()
        if tracing is not None:
            tracing.close()


async def _serve(
    settings: Settings,
    registry: Registry,
    metrics: Metrics,
    tracing: "Tracing | None",
    metrics_url: str,
    on_serving: Callable[[Serving], None],
) -> None:
    request_log = open_request_log(settings, metrics)
    cache = open_cache(settings, metrics)
    server = RecallServer(
        Pipeline(registry, cache, metrics, tracing),
        f"{settings.host}:{settings.port}",
        observer=metrics,
        rpc_observer=metrics,
        call_log=CallLog(settings.call_log_sample, settings.scenes, tracing.trace_id if tracing else None),
        tracer=tracing,
        recall_log=request_log,
        max_batch_requests=settings.max_batch_requests,
        drain_seconds=settings.drain_seconds,
    )
    try:
        port = await server.start()
        await _warm_up(registry, metrics)
        await server.mark_serving()
        versions = {info.name: (info.version, info.catalog_version) for info in registry.infos}
        serving = Serving(f"{settings.host}:{port}", f"{metrics_url}/metrics", versions)
        logger.info("serving %s on %s, metrics on %s", ", ".join(versions), serving.address, serving.metrics_url)
        signalled = asyncio.create_task(server.serve_until_signal())
        await asyncio.sleep(0)  # its signal handlers are in place before anyone is told where to send a signal
        on_serving(serving)
        await signalled
    finally:
        if request_log is not None:
            await asyncio.to_thread(request_log.close)
        await cache.close()


def engine_limits(settings: Settings) -> EngineLimits:
    """The engine's share of the settings; how many levels a bundle has is filled in by the registry."""
    return EngineLimits(
        max_rows=settings.max_rows,
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
    """The tier in this process, and Redis where a URL is set."""
    time_to_live = TimeToLive(settings.cache_ttl_seconds, settings.cache_ttl_jitter)
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
    for info in registry.infos:
        metrics.bundle(info.name, info.version, info.score_space.value)
        metrics.catalog(info.name, info.catalog_version, info.catalog_items)


async def _warm_up(registry: Registry, metrics: Metrics) -> None:
    for live in registry:
        started = time.perf_counter()
        await live.warm_up()
        metrics.warmed_up(live.info.name, time.perf_counter() - started)
