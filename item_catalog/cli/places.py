"""Where a catalogue lies, as people write it: a directory of its own, a store, or a version in a store."""

from collections.abc import Callable
from pathlib import Path

from item_catalog.catalog import Catalog
from item_catalog.storage.directory import open_catalog
from item_catalog.updating.store import CatalogStore, is_store

PLACE_HELP = "Directory of a catalogue; of a store, for what is current in it; or STORE@VERSION."


def open_place(place: str, verify: bool, progress: Callable[[str], None] = lambda _step: None) -> Catalog:
    """The catalogue there, in a store with its updates.

    verify, progress: see open_catalog; of a store nothing is told. Raises CatalogError as open_catalog and
    CatalogStore.load do.
    """
    path = Path(place)
    store, at, version = place.rpartition("@")
    if at and not path.exists() and is_store(Path(store)):
        return CatalogStore(Path(store)).load(version, verify).catalog
    if is_store(path):
        return CatalogStore(path).load(verify=verify).catalog
    return open_catalog(path, verify, progress)
