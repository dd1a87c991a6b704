"""Changes what is live under one name, one change at a time: another catalogue version, updates, the bundle anew.

Everything heavy is done in threads, beside what is live, and what is live changes by one assignment. Whatever fails,
the old stays. Knows no gRPC and no clock: when to look at the store is for its caller to say.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from item_catalog.errors import CatalogError
from item_catalog.filters import Filter
from item_catalog.store import CatalogStore, Snapshot
from item_catalog.store_state import StoreState
from item_catalog.updates import InvalidUpdates, ItemUpdates
from recall_service.errors import ChangeRefused, InvalidRequest, RecallError, SetupError, UnknownVersion, Violation
from recall_service.serving.bundle_reload import relaunched
from recall_service.serving.changes import BundleSwap, CatalogState, CatalogSwap, UpdatesApplied
from recall_service.serving.launch import Launch
from recall_service.serving.registry import LiveBundle, Registry
from recall_service.serving.sid_tokens import token_violations

logger = logging.getLogger(__name__)

WARM_UP_PATIENCE_SECONDS = 30.0  # for an engine that is full of others' searches
RETIRE_SECONDS = 60.0  # that a replaced engine may take to answer those who pinned it


class CatalogKeeper:
    """Of the bundle called `name`. For use by the event loop of the registry.

    One version at most is kept ready beside the live one; another that is loaded takes its place.
    Methods raise ChangeRefused for what cannot be done, NotReady where the engine is of no use, and as they say.
    """

    def __init__(self, name: str, registry: Registry, launch: Launch) -> None:
        self._name, self._registry, self._launch = name, registry, launch
        self._lock = asyncio.Lock()
        self._standby: LiveBundle | None = None
        self._warming: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return f"bundle {self._name}"

    async def load(self, version: str) -> CatalogState:
        """Read, check and warm a version of the store, empty for its current one, and keep it ready.

        Raises UnknownVersion for one that the store does not have.
        """
        async with self._changing("catalog"):
            store = self._store()
            self._standby = await self._read(store, version or (await asyncio.to_thread(store.head)).base)
            return CatalogState.of(self._standby)

    async def activate(self, version: str) -> CatalogSwap:
        """Make a version live, and then the store's current one. Raises UnknownVersion as `load` does."""
        async with self._changing("catalog"):
            store = self._store()
            return await self._swap(store, version, partial(store.activate, version))

    async def rollback(self) -> CatalogSwap:
        """Make the version live that was the store's current one before."""
        async with self._changing("catalog"):
            store = self._store()
            version = await asyncio.to_thread(store.previous)
            if version is None:
                raise ChangeRefused(f"{self}: no version was current before this one; activate one by its name")
            return await self._swap(store, version, store.rollback)

    async def apply(self, updates: ItemUpdates) -> UpdatesApplied:
        """Change items: durable in the store first, then live here. Raises InvalidRequest for what does not fit."""
        async with self._changing("catalog"):
            store = self._store()
            level_tokens = self._live.bundle.template.level_tokens
            if violations := await asyncio.to_thread(token_violations, updates, level_tokens):
                raise InvalidRequest(violations)  # before it is durable: it could never go live
            await self._follow(store)
            try:
                snapshot, applied = await asyncio.to_thread(store.apply, updates, self._snapshot())
            except InvalidUpdates as error:
                raise InvalidRequest([Violation(*problem) for problem in error.problems]) from None
            if snapshot is not self._snapshot():  # else nothing has changed
                await self._catch_up(snapshot)
            logger.info(
                "catalogue of bundle %s: updates added %d, changed %d, removed %d; version %s is live",
                *(self._name, applied.added, applied.changed, applied.removed, self._live.info.catalog_version),
            )
            return UpdatesApplied(
                CatalogState.of(self._live), applied.added, applied.changed, applied.removed, applied.unknown_removals
            )

    async def reload(self) -> BundleSwap:
        """Make live what the bundle's directory holds now: model, prompt and catalogue, on an engine of its own."""
        async with self._changing("bundle"):
            fresh = await relaunched(self._live, self._launch)
            self._standby = None  # it was made for the old engine
            before = self._go_live(fresh, "bundle")
            self._launch.observer.engine_health(self._name, healthy=True)
            retiring = asyncio.create_task(self._registry.retire(before.runner, RETIRE_SECONDS))
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
            logger.info("bundle %s: version %s is live, %s was", self._name, fresh.info.version, before.info.version)
            return BundleSwap(fresh.info, before.info.version)

    async def follow(self) -> None:
        """Make live what others have made current in the store, or written to it.

        Raises whatever keeps it from that, CatalogError and SetupError included; it is for the caller to count.
        """
        async with self._lock:
            if (store := self._live.bundle.store) is not None:
                await self._follow(store)

    async def close(self) -> None:
        """Give up what runs in the background; engines that were replaced are the registry's to stop."""
        background = [*self._retiring, *([self._warming] if self._warming else [])]
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)

    @property
    def _live(self) -> LiveBundle:
        """Looked up anew each time: kept in a variable, the old one would outlive its last request."""
        return self._registry.pin(self._name)

    def _told(self) -> tuple[str, str]:
        return self._name, self._live.info.catalog_version

    def _store(self) -> CatalogStore:
        if (store := self._live.bundle.store) is None:
            raise ChangeRefused(
                f"{self}: its catalogue is no store, so it changes by ReloadBundle alone; publish it into "
                "one (item-catalog publish), and let catalog.path of bundle.toml name that"
            )
        return store

    def _snapshot(self) -> Snapshot:
        snapshot = self._live.bundle.snapshot
        assert snapshot is not None, "a bundle with a store has a snapshot of it"
        return snapshot

    @asynccontextmanager
    async def _changing(self, kind: str) -> AsyncIterator[None]:
        """One change at a time; what is not fit to go live is counted, and said to whoever asked."""
        async with self._lock:
            try:
                yield
            except (CatalogError, SetupError) as error:
                self._launch.observer.reloaded(kind, "failed")
                logger.error("%s: a change was refused: %s", self, error)
                raise ChangeRefused(f"{self}: {error}") from error

    async def _follow(self, store: CatalogStore) -> None:
        before = self._snapshot()
        if await asyncio.to_thread(store.head) == before.head:
            return
        snapshot = await asyncio.to_thread(store.refresh, before)
        if snapshot is before:
            return
        if snapshot.head.base == before.head.base:
            await self._catch_up(snapshot)
        else:
            self._go_live(await self._warm(snapshot), "catalog")
        logger.info("catalogue of bundle %s: version %s is live, as the store has it", *self._told())

    async def _read(self, store: CatalogStore, version: str) -> LiveBundle:
        """A version of the store, checked and warm; the one that is kept ready, where it is that, with all updates."""
        published = (await asyncio.to_thread(StoreState.read, store.path)).logs  # damaged ones too
        if version not in published:
            raise UnknownVersion(f"version: {version[:64]!r} is not in the store; it has {', '.join(published)}")
        if self._standby is not None and self._standby.bundle.snapshot is not None:
            head = self._standby.bundle.snapshot.head
            update_bytes = {stored.version: stored.update_bytes for stored in await asyncio.to_thread(store.versions)}
            if (head.base, head.log_bytes) == (version, update_bytes.get(version)):
                return self._standby
        self._standby = None  # before another is made: each takes memory
        return await self._warm(await asyncio.to_thread(store.load, version))

    async def _warm(self, snapshot: Snapshot) -> LiveBundle:
        fresh = await self._beside(snapshot)
        started = time.perf_counter()
        await fresh.warm_up(WARM_UP_PATIENCE_SECONDS)
        self._launch.observer.warmed_up(self._name, time.perf_counter() - started)
        await _warm_filters(fresh, self._live.filters.recent())
        return fresh

    async def _beside(self, snapshot: Snapshot) -> LiveBundle:
        bundle = await asyncio.to_thread(self._live.bundle.with_snapshot, snapshot)
        return self._launch.join(bundle, self._live.runner)

    async def _swap(self, store: CatalogStore, version: str, commit: Callable[[], object]) -> CatalogSwap:
        """Live here, then in the store; should the latter fail, neither."""
        fresh = await self._read(store, version)
        before = self._go_live(fresh, "catalog")
        try:
            await asyncio.to_thread(commit)
        except CatalogError as error:
            self._registry.replace(before)
            self._launch.tell(before)
            raise CatalogError(f"{error}; version {before.info.catalog_version} is live again") from error
        self._standby = None
        logger.info("catalogue of bundle %s: version %s is live, %s was", *self._told(), before.info.catalog_version)
        with suppress(CatalogError, SetupError):  # the version is live all the same
            await self._follow(store)  # what came to it while it was made ready
        return CatalogSwap(CatalogState.of(self._live), before.info.catalog_version)

    async def _catch_up(self, snapshot: Snapshot) -> None:
        """The same version with updates: live at once; the filters in use are worked out behind it."""
        recent = self._live.filters.recent()
        fresh = await self._beside(snapshot)
        self._go_live(fresh, "catalog")
        if self._warming is not None:
            self._warming.cancel()
        self._warming = asyncio.create_task(_warm_filters(fresh, recent))

    def _go_live(self, fresh: LiveBundle, kind: str) -> LiveBundle:
        before = self._registry.replace(fresh)
        self._launch.tell(fresh)
        self._launch.observer.reloaded(kind, "ok")
        return before


async def _warm_filters(fresh: LiveBundle, recent: Sequence[Filter]) -> None:
    """As many as can be: what is not worked out now is when somebody asks."""
    with suppress(RecallError):
        await fresh.filters.warm(recent)
