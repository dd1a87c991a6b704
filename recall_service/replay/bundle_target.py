"""A bundle in this process as a target: what a server does from message to message, without its cache."""

import time

from recall_service.app import engine_limits
from recall_service.config import Settings
from recall_service.engine.device import resolve_device
from recall_service.errors import RecallError, SetupError
from recall_service.replay.answers import from_response
from recall_service.replay.asked import Asked
from recall_service.replay.target import Reply
from recall_service.rpc.convert import encode_response, to_query
from recall_service.rpc.status import code_of, reason_of
from recall_service.rpc.validation import check_recall, find_bundle
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.hooks import NullObserver
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.query import CacheMode, RecallAnswer
from recall_service.stubs.recall.v1.recall_pb2 import RecallResponse


class BundleTarget:
    """The bundles of `settings`, loaded by `open`, with the engine that the settings describe; the cache is off."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry: Registry | None = None
        self._pipeline: Pipeline | None = None

    async def open(self) -> str:
        """Load and warm up. Raises SetupError as the server would."""
        settings, observer = self._settings, NullObserver()
        launch = Launch(engine_limits(settings), observer, settings.filter_cache_bytes, resolve_device(settings.device))
        registry = open_registry(settings.bundles, settings.default_bundle, launch)
        self._registry = registry
        try:
            for live in registry:
                await live.warm_up()
        except SetupError:
            registry.close()
            raise
        no_tier = LocalTier(max_bytes=0, time_to_live=TimeToLive(1.0, 0.0), observer=observer)
        self._pipeline = Pipeline(registry, ResultCache(no_tier, None, observer), observer)
        bundles = ", ".join(f"{b.name} {b.version} with catalogue {b.catalog_version}" for b in registry.infos)
        return f"in this process: {bundles}"

    async def ask(self, asked: Asked, timeout_seconds: float) -> Reply:
        """Validate and answer one question, as the server does."""
        try:
            answer = await self._answer(asked, timeout_seconds)
        except RecallError as error:
            return Reply(code_of(error).name, reason_of(error))
        wire = encode_response(answer, request_id="", attribution_token="", total_seconds=0.0)
        return Reply("OK", answer=from_response(RecallResponse.FromString(wire)))

    async def close(self) -> None:
        """Stop the engines."""
        if self._registry is not None:
            self._registry.close()

    async def _answer(self, asked: Asked, timeout_seconds: float) -> RecallAnswer:
        assert self._pipeline is not None, "open comes first"
        history = check_recall(asked.request, find_bundle(self._pipeline.bundles(), asked.request.bundle))
        query = to_query(asked.request, history, time.monotonic() + timeout_seconds)
        return await self._pipeline.recall(query._replace(cache_mode=CacheMode.BYPASS), asked.request.scene)
