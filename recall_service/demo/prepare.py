"""Makes everything the demo serves, once: shop, trained model, catalogue and bundle, kept for the next run.

Each set of settings has a directory of its own, named by their digest, and so has each format of catalogues: what an
earlier release made is left alone. A directory is filled under a temporary name and renamed when complete, so one that
exists is whole. The shop itself is not stored: its settings draw the same one again.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.storage.manifest import FORMAT_VERSION
from item_catalog.updating.store import CatalogStore
from recall_service.demo.assortment import LAYOUT
from recall_service.demo.bundle_file import MODEL_DIRECTORY, STORE_DIRECTORY, write_bundle
from recall_service.demo.shop import Shop, make_shop
from recall_service.demo.training import MAX_HISTORY, train_checkpoint
from recall_service.errors import SetupError

# What the result depends on: an earlier run is kept only while these have not changed.
_RECIPE = ("assortment", "batches", "bundle_file", "prepare", "shop", "shoppers", "tokens", "training", "words")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """All that decides what is prepared. max_seconds is the wall time that training may take."""

    seed: int = 7
    num_items: int = 20_000
    num_train_users: int = 24_000
    num_held_out_users: int = 1_000
    max_seconds: float = 60.0

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that differ between settings, formats of catalogues and versions of the code."""
        digest = hashlib.sha256(json.dumps([asdict(self), FORMAT_VERSION], sort_keys=True).encode())
        for module in _RECIPE:
            digest.update(Path(__file__).with_name(f"{module}.py").read_bytes())
        return digest.hexdigest()[:12]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDemo:
    """bundle_directory holds bundle.toml, model/ and catalog/, a store; `reused` says that an earlier run made them."""

    bundle_directory: Path
    shop: Shop
    reused: bool


def prepare_demo(directory: Path, settings: DemoSettings | None = None, *, progress: bool = True) -> PreparedDemo:
    """Make the demo under `directory`, or reuse what an earlier run with equal settings completed there.

    Takes a few seconds more than the training. Raises SetupError when `directory` is a file.
    """
    settings = settings or DemoSettings()
    if directory.exists() and not directory.is_dir():
        raise SetupError(f"demo directory: {directory} is a file; give a directory, which may be new")
    shop = make_shop(
        seed=settings.seed,
        num_items=settings.num_items,
        num_train_users=settings.num_train_users,
        num_held_out_users=settings.num_held_out_users,
    )
    bundle_directory = directory / f"demo-shop-{settings.digest}"
    reused = bundle_directory.is_dir()
    if not reused:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".unfinished-", dir=directory) as unfinished:
            made = Path(unfinished) / bundle_directory.name
            _make_bundle(made, shop, settings, progress=progress)
            _publish(made, bundle_directory)
    return PreparedDemo(bundle_directory, shop, reused)


def restock(demo: PreparedDemo) -> None:
    """Let the store's current catalogue be the whole shop again, whatever an earlier run or a visitor changed in it."""
    store = CatalogStore(demo.bundle_directory / STORE_DIRECTORY)
    catalog = _catalog(demo.shop)
    if store.load().catalog.version != catalog.version:
        store.publish(catalog)


def _make_bundle(directory: Path, shop: Shop, settings: DemoSettings, *, progress: bool) -> None:
    directory.mkdir()
    train_checkpoint(
        shop, directory / MODEL_DIRECTORY, max_seconds=settings.max_seconds, seed=settings.seed, progress=progress
    )
    CatalogStore.create(directory / STORE_DIRECTORY, _catalog(shop))
    write_bundle(directory, LAYOUT, max_history=MAX_HISTORY)


def _catalog(shop: Shop) -> Catalog:
    assortment = shop.assortment
    return build_catalog(LAYOUT, assortment.sids, assortment.item_ids, assortment.attributes())


def _publish(made: Path, bundle_directory: Path) -> None:
    try:
        made.rename(bundle_directory)
    except OSError:
        if not bundle_directory.is_dir():
            raise
        # Another run with equal settings was quicker, and what it made is as good.
