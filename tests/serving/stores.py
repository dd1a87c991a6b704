"""Bundles whose catalogue lies in a store, and the catalogues that go into it."""

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.filtering.filters import Filter, IsIn
from item_catalog.updating.store import CatalogStore, Head
from recall_service.serving.bundles.bundle import load_bundle
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.pipeline import Pipeline
from recall_service.serving.query import RecallQuery
from recall_service.serving.swapping.operations import Operations
from tests.serving.bundles import FILTER_CACHE_BYTES, LAYOUT, LIMITS, small_rows, write_model, write_toml
from tests.serving.served import RecordingObserver


@cache
def shop_catalog(first_item: int = 0) -> Catalog:
    """The rows of `small_rows`, with an attribute: every third item is a shoe, the others are hats."""
    sids, item_ids = small_rows(first_item)
    kinds = ["hat" if row % 3 else "shoe" for row in range(len(item_ids))]
    return build_catalog(LAYOUT, sids, item_ids, {"kind": pa.array(kinds)})


OLD, NEW = shop_catalog(), shop_catalog(100)
HATS = Filter((IsIn("kind", ("hat",)),))


def write_store_bundle(directory: Path, *catalogs: Catalog, seed: int = 0, **changes: dict[str, Any]) -> CatalogStore:
    """A bundle in `directory`, which is made, over a store of `catalogs`; the first one is current."""
    directory.mkdir(parents=True, exist_ok=True)
    write_model(directory / "model", seed)
    first, *others = catalogs or [shop_catalog()]
    CatalogStore.create(directory / "catalog", first)
    store = CatalogStore(directory / "catalog")
    for other in others:
        store.publish(other, activate=False)
    write_toml(directory, **changes)
    return store


class Operated:
    """Bundles gone live, the operations on them, and a pipeline around them; the cache has room if it is told so."""

    def __init__(self, *directories: Path, cache_bytes: int = 0) -> None:
        self.observer = RecordingObserver()
        launch = Launch(LIMITS, self.observer, FILTER_CACHE_BYTES)
        self.registry = open_registry(directories, "", launch)
        self.operations = Operations(self.registry, launch)
        local = LocalTier(max_bytes=cache_bytes, time_to_live=TimeToLive(60.0, 0.0), observer=self.observer)
        self.pipeline = Pipeline(self.registry, ResultCache(local, None, self.observer), self.observer)

    @property
    def version(self) -> str:
        """Of the default bundle's live catalogue."""
        return self.registry.pin("").info.catalog_version

    @property
    def head(self) -> Head | None:
        """Which state of its store the default bundle's live catalogue is; None for one that is in no store."""
        snapshot = self.registry.pin("").bundle.snapshot
        return None if snapshot is None else snapshot.head

    async def recall(self, history: tuple[str, ...] | None = ("item-004", "item-104"), **fields: Any) -> Any:
        """What the default bundle answers."""
        return await self.pipeline.recall(RecallQuery(history=history, **fields), "feed")

    async def close(self) -> None:
        """Stop what runs."""
        await self.operations.close()
        self.registry.close()


def in_store(directory: Path) -> str:
    """The catalogue version that a server of the bundle in `directory`/tiny would serve if it started now."""
    return load_bundle(directory / "tiny").catalog.version
