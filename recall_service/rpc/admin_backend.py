"""What the operators' face needs from the room behind it. Knows no gRPC."""

from collections.abc import Sequence
from typing import Protocol

from item_catalog.updating.updates import ItemUpdates
from recall_service.serving.swapping.changes import BundleState, BundleSwap, CatalogState, CatalogSwap, UpdatesApplied


class AdminBackend(Protocol):
    """Looks after what is live; `serving.operations` in production, a fake in tests.

    An empty bundle is the default one. What cannot be done raises an error of `recall_service.errors`, and changes
    nothing.
    """

    def bundles(self) -> Sequence[BundleState]:
        """Every live bundle, the default one first."""

    async def load_catalog(self, bundle: str, version: str) -> CatalogState:
        """Make a version ready; empty means the store's current one."""

    async def activate_catalog(self, bundle: str, version: str) -> CatalogSwap:
        """Make a version live."""

    async def rollback_catalog(self, bundle: str) -> CatalogSwap:
        """Make the version live that was current before."""

    async def apply_updates(self, bundle: str, updates: ItemUpdates) -> UpdatesApplied:
        """Change items of the live catalogue."""

    async def reload_bundle(self, bundle: str) -> BundleSwap:
        """Read a bundle's directory anew and make it live."""
