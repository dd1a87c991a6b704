"""What operators ask for while the service serves, by the name of a bundle; and the stores that are watched meanwhile.

The changes of one bundle are made one after another. One that has begun is carried through, whether or not whoever
asked for it still waits; one whose turn has not come when they leave is not made.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from item_catalog.updating.updates import ItemUpdates
from recall_service.errors import Overloaded
from recall_service.serving.bundles.launch import Launch
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.swapping.catalog_keeper import CatalogKeeper
from recall_service.serving.swapping.changes import BundleState, BundleSwap, CatalogState, CatalogSwap, UpdatesApplied
from recall_service.serving.swapping.store_watch import watch_store
from recall_service.serving.swapping.turns import Turns

MAX_WAITING = 16  # changes of one bundle; a batch of updates takes memory while it waits
_RETRY_SECONDS = 5.0

Done = TypeVar("Done")


class Operations:
    """For use by the event loop of `registry`.

    An empty bundle is the default one. Methods raise as those of CatalogKeeper do, UnknownVersion for an unknown
    bundle, and Overloaded where too many changes wait already.
    """

    def __init__(self, registry: Registry, launch: Launch) -> None:
        self._registry, self._launch = registry, launch
        self._keepers = {live.info.name: CatalogKeeper(live.info.name, registry, launch) for live in registry}
        self._turns = {name: Turns() for name in self._keepers}
        self._watches: list[asyncio.Task[None]] = []

    def bundles(self) -> Sequence[BundleState]:
        """Every live bundle, the default one first."""
        return [BundleState.of(live) for live in self._registry]

    async def load_catalog(self, bundle: str, version: str) -> CatalogState:
        """Make a version ready; empty means the store's current one."""
        return await self._change(bundle, lambda keeper: keeper.load(version))

    async def activate_catalog(self, bundle: str, version: str) -> CatalogSwap:
        """Make a version live."""
        return await self._change(bundle, lambda keeper: keeper.activate(version))

    async def rollback_catalog(self, bundle: str) -> CatalogSwap:
        """Make the version live that was current before."""
        return await self._change(bundle, lambda keeper: keeper.rollback())

    async def apply_updates(self, bundle: str, updates: ItemUpdates) -> UpdatesApplied:
        """Change items of the live catalogue."""
        return await self._change(bundle, lambda keeper: keeper.apply(updates))

    async def reload_bundle(self, bundle: str) -> BundleSwap:
        """Read a bundle's directory anew and make it live."""
        return await self._change(bundle, lambda keeper: keeper.reload())

    def watch(self, seconds: float) -> None:
        """From now on look at the stores every so many seconds, and make live what others make current there."""
        for name, keeper in self._keepers.items():
            follow = partial(self._turns[name].take, keeper.follow)
            self._watches.append(asyncio.create_task(watch_store(name, follow, seconds, self._launch.observer)))

    async def close(self) -> None:
        """Give up what runs. A change that is being written to a store still is; it is not made live here."""
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for name, keeper in self._keepers.items():
            await self._turns[name].close()
            await keeper.close()

    async def _change(self, bundle: str, change: Callable[[CatalogKeeper], Coroutine[Any, Any, Done]]) -> Done:
        name = self._registry.pin(bundle).info.name
        turns = self._turns[name]
        if turns.num_waiting >= MAX_WAITING:
            raise Overloaded(
                f"bundle {name}: {turns.num_waiting} other changes wait for their turn; ask again once they are made",
                retry_after_seconds=_RETRY_SECONDS,
            )
        return await turns.take(lambda: change(self._keepers[name]))
