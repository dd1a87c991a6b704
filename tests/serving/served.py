"""A pipeline over real bundles, and an observer that remembers what it heard."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.query import RecallQuery
from tests.serving.bundles import LIMITS, small_registry

HISTORY = ("item-004", "item-017", "item-031")


class RecordingObserver:
    """Remembers every call by name and arguments, durations left out."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        def record(*arguments: Any, **named: Any) -> None:
            told = (*arguments, *named.values()) if name != "step" else arguments
            self.calls.append((name, *(value for value in told if not isinstance(value, float))))

        return record

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """Calls of those names, in order."""
        return [call for call in self.calls if call[0] in names]

    @property
    def verdicts(self) -> list[tuple[Any, ...]]:
        """How each question ended."""
        return self.of("answered", "failed", "short", "rejected", "deadline_expired")


class Served:
    """Bundles gone live, a pipeline with a cache around them, and what its observer heard."""

    def __init__(self, *directories: Path, limits: Any = LIMITS) -> None:
        self.observer = RecordingObserver()
        self.registry: Registry = small_registry(*directories, observer=self.observer, limits=limits)
        local = LocalTier(max_bytes=1 << 20, time_to_live=TimeToLive(60.0, 0.0), observer=self.observer)
        self.pipeline = Pipeline(self.registry, ResultCache(local, None, self.observer), self.observer)

    def live(self, name: str = "") -> LiveBundle:
        return self.registry.pin(name)

    async def recall(self, history: tuple[str, ...] | None = HISTORY, **fields: Any) -> Any:
        return await self.pipeline.recall(RecallQuery(history=history, **fields), "feed")
