"""Changes what is live under one name: another catalogue version, updates, the bundle anew.

Everything heavy is done in threads, beside what is live. Then the store is changed, if it is to be, and last of all
what is live, by one assignment that cannot fail: whatever else does, the old stays. Knows no gRPC and no clock: when to
look at the store, and that one change follows another, is for its caller to see to.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from item_catalog.errors import CatalogError
from item_catalog.updating.store import CatalogStore, Head, Snapshot
from item_catalog.updating.store_state import StoreState
from item_catalog.updating.updates import InvalidUpdates, ItemUpdates
from recall_service.errors import (
    BundleError,
    ChangeRefused,
    InvalidRequest,
    RecallError,
    SetupError,
    UnknownVersion,
    Violation,
)
from recall_service.serving.bundles.bundle import Bundle
from recall_service.serving.bundles.launch import Launch
from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.bundles.sid_tokens import token_violations
from recall_service.serving.swapping.bundle_reload import relaunched
from recall_service.serving.swapping.changes import BundleSwap, CatalogState, CatalogSwap, UpdatesApplied

logger = logging.getLogger(__name__)

RETIRE_SECONDS = 60.0  # that a replaced engine may take to answer those who pinned it


class CatalogKeeper:
    """Of the bundle called `name`. For use by the event loop of the registry, one call at a time.

    One version at most is kept ready beside the live one; another that is loaded takes its place.
    Methods raise ChangeRefused for what cannot be done, NotReady where the engine is of no use, and as they say.
    """

    def __init__(self, name: str, registry: Registry, launch: Launch) -> None:
        self._name, self._registry, self._launch = name, registry, launch
        self._standby: LiveBundle | None = None
        self._warming: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    def __str__(self) -> str:
        return f"bundle {self._name}"

    async def load(self, version: str) -> CatalogState:
        """Read, check and warm a version of the store, empty for its current one, and keep it ready.

        Raises UnknownVersion for one that the store does not have.
        """
        with self._changing("catalog"):
            fresh = await self._read(self._store(), version)
            if fresh is not self._live:
                self._standby = fresh
            return CatalogState.of(fresh)

    async def activate(self, version: str) -> CatalogSwap:
        """Make a version the store's current one, and live. Raises UnknownVersion as `load` does."""
        with self._changing("catalog"):
            store = self._store()
            return await self._swap(store, version, partial(store.activate, version))

    async def rollback(self) -> CatalogSwap:
        """Make the version live that was the store's current one before."""
        with self._changing("catalog"):
            store = self._store()
            version = await asyncio.to_thread(store.previous)
            if version is None:
                raise ChangeRefused(f"{self}: no version was current before this one; activate one by its name")
            return await self._swap(store, version, partial(store.rollback, expected=version))

    async def apply(self, updates: ItemUpdates) -> UpdatesApplied:
        """Change items: durable in the store first, then live here. Raises InvalidRequest for what does not fit."""
        with self._changing("catalog"):
            store = self._store()
            level_tokens = self._live.bundle.template.level_tokens
            if violations := await asyncio.to_thread(token_violations, updates, level_tokens):
                raise InvalidRequest(violations)  # what they lead to would be refused as well, but not by its fields
            await self._follow_as_far_as_can_be(store)
            try:
                bundle, applied = await asyncio.to_thread(self._live.bundle.updated, updates)
            except InvalidUpdates as error:
                raise InvalidRequest([Violation(*problem) for problem in error.problems]) from None
            if bundle.snapshot is not self._live.bundle.snapshot:  # else nothing has changed
                self._catch_up(bundle)
            logger.info(
                "catalogue of bundle %s: updates added %d, changed %d, removed %d; version %s is live",
                *(self._name, applied.added, applied.changed, applied.removed, self._live.info.catalog_version),
            )
            return UpdatesApplied(
                CatalogState.of(self._live), applied.added, applied.changed, applied.removed, applied.unknown_removals
            )

    async def reload(self) -> BundleSwap:
        """Make live what the bundle's directory holds now: model, prompt and catalogue, on an engine of its own."""
        with self._changing("bundle"):
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

    @contextmanager
    def _changing(self, kind: str) -> Iterator[None]:
        """What is not fit to go live is counted, and said to whoever asked; so is what nobody thought of."""
        try:
            yield
        except (CatalogError, SetupError) as error:
            self._launch.observer.reloaded(kind, "failed")
            problem = str(error).removeprefix(f"{self}: ")
            logger.error("%s: a change was refused: %s", self, problem)
            raise ChangeRefused(f"{self}: {problem}") from error
        except RecallError:
            raise  # the caller's own mistake, or an engine that is of no use
        except Exception:
            self._launch.observer.reloaded(kind, "failed")
            logger.exception("%s: a change failed, and the old stays", self)
            raise

    async def _follow(self, store: CatalogStore) -> None:
        before, head = self._snapshot(), await asyncio.to_thread(store.head)
        if head == before.head:
            return
        if head.line != before.head.line:
            fresh = await self._read(store, head.base)
            self._standby = None
            self._go_live(fresh, "catalog")
        else:
            snapshot = await asyncio.to_thread(store.refresh, before)
            if snapshot is before or snapshot.head.line != head.line:  # a torn tail, or a change at this very moment
                return
            self._catch_up(await asyncio.to_thread(self._live.bundle.with_snapshot, snapshot))
        logger.info("catalogue of bundle %s: version %s is live, as the store has it", *self._told())

    async def _follow_as_far_as_can_be(self, store: CatalogStore) -> None:
        """But for updates of others that make no catalogue for this bundle: further ones may heal that."""
        try:
            await self._follow(store)
        except BundleError:
            if (await asyncio.to_thread(store.head)).line != self._snapshot().head.line:
                raise

    async def _read(self, store: CatalogStore, version: str) -> LiveBundle:
        """A version of the store, empty for its current one, with all updates, checked and warm.

        What is ready or live is not read again if it is that.
        """
        published = (await asyncio.to_thread(StoreState.read, store.path)).logs  # damaged ones too
        if version and version not in published:
            raise UnknownVersion(f"version: {version[:64]!r} is not in the store; it has {', '.join(published)}")
        known = self._known(await asyncio.to_thread(store.head, version))
        if known is not None:
            return known
        self._standby = None  # before another is made: each takes memory
        return await self._warm(await asyncio.to_thread(store.load, version))

    def _known(self, head: Head) -> LiveBundle | None:
        """What is live or ready, if it is of that state of the store."""
        for known in (self._live, self._standby):
            if known is not None and known.bundle.snapshot is not None and known.bundle.snapshot.head == head:
                return known
        return None

    async def _warm(self, snapshot: Snapshot) -> LiveBundle:
        bundle = await asyncio.to_thread(self._live.bundle.with_snapshot, snapshot)
        fresh = self._launch.join(bundle, self._live.runner)
        started = time.perf_counter()
        await fresh.warm_up()
        self._launch.observer.warmed_up(self._name, time.perf_counter() - started)
        await fresh.warm_filters(self._live.filters.recent())
        return fresh

    async def _swap(self, store: CatalogStore, version: str, commit: Callable[[], object]) -> CatalogSwap:
        """Ready here, current in the store, live here."""
        fresh = await self._read(store, version)
        await asyncio.to_thread(commit)
        self._standby = None
        previous_version = self._go_live(fresh, "catalog").info.catalog_version
        logger.info("catalogue of bundle %s: version %s is live, %s was", *self._told(), previous_version)
        with suppress(CatalogError, RecallError):  # the version is live all the same
            await self._follow(store)  # what came to it while it was made ready
        return CatalogSwap(CatalogState.of(self._live), previous_version)

    def _catch_up(self, bundle: Bundle) -> None:
        """The same version with updates: live at once; the filters in use are worked out behind it."""
        filters = self._live.filters.recent()
        fresh = self._launch.join(bundle, self._live.runner)
        self._go_live(fresh, "catalog")
        self._warming = asyncio.create_task(fresh.warm_filters(filters))

    def _go_live(self, fresh: LiveBundle, kind: str) -> LiveBundle:
        if self._warming is not None:
            self._warming.cancel()  # what it has not come to, `recent` of its filters names
            self._warming = None
        before = self._registry.replace(fresh)
        self._launch.tell(fresh)
        self._launch.observer.reloaded(kind, "ok")
        return before
