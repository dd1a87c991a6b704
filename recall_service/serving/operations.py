"""What operators ask for while the service serves, by the name of a bundle; and the stores that are watched meanwhile.

A change that has begun is carried through, whether or not whoever asked for it still waits.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from item_catalog.updates import ItemUpdates
from recall_service.serving.catalog_keeper import CatalogKeeper
from recall_service.serving.changes import BundleState, BundleSwap, CatalogState, CatalogSwap, UpdatesApplied
from recall_service.serving.launch import Launch
from recall_service.serving.registry import Registry
from recall_service.serving.store_watch import watch_store

Done = TypeVar("Done")


class Operations:
    """For use by the event loop of `registry`.

    An empty bundle is the default one. Methods raise as those of CatalogKeeper do, and UnknownVersion for an unknown
    bundle.
    """

    def __init__(self, registry: Registry, launch: Launch) -> None:
        self._registry, self._launch = registry, launch
        self._keepers = {live.info.name: CatalogKeeper(live.info.name, registry, launch) for live in registry}
        self._running: set[asyncio.Task[Any]] = set()

    def bundles(self) -> Sequence[BundleState]:
        """Every live bundle, the default one first."""
        return [BundleState.of(live) for live in self._registry]

    async def load_catalog(self, bundle: str, version: str) -> CatalogState:
        """Make a version ready; empty means the store's current one."""
        return await self._carry_through(self._keeper(bundle).load(version))

    async def activate_catalog(self, bundle: str, version: str) -> CatalogSwap:
        """Make a version live."""
        return await self._carry_through(self._keeper(bundle).activate(version))

    async def rollback_catalog(self, bundle: str) -> CatalogSwap:
        """Make the version live that was current before."""
        return await self._carry_through(self._keeper(bundle).rollback())

    async def apply_updates(self, bundle: str, updates: ItemUpdates) -> UpdatesApplied:
        """Change items of the live catalogue."""
        return await self._carry_through(self._keeper(bundle).apply(updates))

    async def reload_bundle(self, bundle: str) -> BundleSwap:
        """Read a bundle's directory anew and make it live."""
        return await self._carry_through(self._keeper(bundle).reload())

    def watch(self, seconds: float) -> None:
        """From now on look at the stores every so many seconds, and make live what others make current there."""
        for keeper in self._keepers.values():
            self._begin(watch_store(keeper, seconds, self._launch.observer))

    async def close(self) -> None:
        """Give up what runs. A change that is being written to a store still is; it is not made live here."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for keeper in self._keepers.values():
            await keeper.close()

    def _keeper(self, bundle: str) -> CatalogKeeper:
        return self._keepers[self._registry.pin(bundle).info.name]

    async def _carry_through(self, change: Coroutine[Any, Any, Done]) -> Done:
        return await asyncio.shield(self._begin(change))

    def _begin(self, work: Coroutine[Any, Any, Done]) -> asyncio.Task[Done]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: whoever asked may have left, and the keeper has logged it
