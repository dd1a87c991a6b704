"""What operators are told: of what is live, and of what they changed."""

from typing import NamedTuple

from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.query import BundleInfo


class BundleState(NamedTuple):
    """One live bundle. waiting, running: requests in its engine. stuck: the engine is of no use."""

    info: BundleInfo
    waiting: int
    running: int
    stuck: bool

    @classmethod
    def of(cls, live: LiveBundle) -> "BundleState":
        """An engine counts as stuck while its gate is shut: the watchdog alone judges that."""
        runner = live.runner
        return cls(live.info, runner.num_waiting, runner.engine.num_running, stuck=runner.gate.refusal is not None)


class CatalogState(NamedTuple):
    """One version of a bundle's catalogue. version: as answers carry it."""

    bundle: str
    version: str
    items: int
    sids: int

    @classmethod
    def of(cls, live: LiveBundle) -> "CatalogState":
        """The catalogue of a bundle that is live, or could be."""
        catalog = live.bundle.catalog
        return cls(live.info.name, catalog.version, catalog.num_items, catalog.trie.num_leaves)


class CatalogSwap(NamedTuple):
    """The catalogue that is live now, and the version that was live before."""

    catalog: CatalogState
    previous_version: str


class UpdatesApplied(NamedTuple):
    """The catalogue that is live now, and how many items were new, known, removed, and to be removed but unknown."""

    catalog: CatalogState
    added: int
    changed: int
    removed: int
    unknown_removals: int


class BundleSwap(NamedTuple):
    """The bundle that is live now, and the version that was live before."""

    info: BundleInfo
    previous_version: str
