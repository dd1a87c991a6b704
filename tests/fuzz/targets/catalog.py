"""Directories of built catalogues: damaged, or forged with checksums that are right."""

import json
import random
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.attribute_columns import attribute_column, attribute_values
from item_catalog.attributes import AttributeKind
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.fingerprint import content_version, fingerprint
from item_catalog.sid import SidLayout
from item_catalog.storage.directory import open_catalog, save_catalog
from item_catalog.storage.manifest import MANIFEST_FILE
from item_catalog.storage.npy import write_array
from item_catalog.updating.trie_edits import locate
from tests.fuzz.hostile import Broken, Hostile, refused
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_values import spoilt_json
from tests.fuzz.odd_values import odd_integer
from tests.serving.bundles import LAYOUT, small_rows

_ARROW_TYPES = {
    AttributeKind.TEXT: pa.string(),
    AttributeKind.INTEGER: pa.int64(),
    AttributeKind.NUMBER: pa.float64(),
    AttributeKind.BOOLEAN: pa.bool_(),
}


class Target:
    """A catalogue that keeps every promise, or one line of error."""

    def __init__(self, directory: Path) -> None:
        sids, texts = small_rows()
        catalogs = {
            "text": build_catalog(LAYOUT, sids, texts, _attributes(len(texts))),
            "integer": build_catalog(LAYOUT, sids, np.arange(len(texts)) * 7 - 20),
        }
        self._directory = directory
        for kind, catalog in catalogs.items():
            save_catalog(catalog, directory / kind)
        self._arrays = {kind: catalog.arrays() for kind, catalog in catalogs.items()}

    def make(self, generator: random.Random) -> Hostile:
        """place: which catalogue, and which of its files; for a forged array the name without a suffix."""
        kind = generator.choice(list(self._arrays))
        name = generator.choice(list(self._arrays[kind]))
        chance = generator.random()
        if chance < 0.35:
            manifest = json.loads((self._directory / kind / MANIFEST_FILE).read_bytes())
            return Hostile(f"{kind}/{MANIFEST_FILE}", spoilt_json(generator, manifest))
        if chance < 0.5:
            content = (self._directory / kind / f"{name}.npy").read_bytes()
            return Hostile(f"{kind}/{name}.npy", mutate_bytes(generator, content))
        return Hostile(f"{kind}/{name}", _spoilt_array(generator, self._arrays[kind][name]).tobytes())

    def check(self, hostile: Hostile) -> None:
        kind, _, file = hostile.place.partition("/")
        spoilt = self._directory / "spoilt"
        shutil.copytree(self._directory / kind, spoilt)
        try:
            if file.endswith((".npy", ".json")):
                (spoilt / file).write_bytes(hostile.data)
            else:
                _forge(spoilt, file, np.frombuffer(hostile.data, self._arrays[kind][file].dtype))
            refused((CatalogError,), partial(_open_and_use, spoilt))
        finally:
            shutil.rmtree(spoilt)

    def close(self) -> None:
        pass


def _attributes(count: int) -> dict[str, pa.Array]:
    """One of each kind, with values that repeat, and some that are missing."""
    rows = range(count)
    return {
        "category": pa.array([("toys", "books", "ö", None)[row % 4] for row in rows]),
        "nothing": pa.nulls(count, pa.string()),
        "stock": pa.array([row % 3 for row in rows]),
        "price": pa.array([None if row % 5 == 0 else row / 2 for row in rows]),
        "is_new": pa.array([row % 2 == 0 for row in rows]),
    }


def _spoilt_array(generator: random.Random, array: NDArray[Any]) -> NDArray[Any]:
    # Of numbers and booleans the bits are spoilt: no other way leads to a boolean that is neither 0 nor 1.
    spoilt = array.copy() if array.dtype.kind in "iu" else array.view(f"u{array.itemsize}").copy()
    for _ in range(generator.choice((1, 1, 2))):
        kind = generator.randrange(4)
        at, other = generator.randrange(len(spoilt)), generator.randrange(len(spoilt))
        if kind == 0:
            spoilt[[at, other]] = spoilt[[other, at]]
        elif kind == 1:
            spoilt = np.delete(spoilt, at) if len(spoilt) > 1 else spoilt
        elif kind == 2:
            spoilt = np.insert(spoilt, at, spoilt[other])
        else:
            limits = np.iinfo(spoilt.dtype)
            spoilt[at] = odd_integer(generator) % (int(limits.max) - int(limits.min) + 1) + int(limits.min)
    return spoilt


def _forge(directory: Path, name: str, array: NDArray[Any]) -> None:
    """Put `array` into the catalogue in place of another, and make the manifest agree with it."""
    (directory / f"{name}.npy").unlink()
    write_array(directory / f"{name}.npy", array)
    manifest = json.loads((directory / MANIFEST_FILE).read_bytes())
    dtype, shape, digest = fingerprint(array)
    size = (directory / f"{name}.npy").stat().st_size
    manifest["arrays"][name] |= {"dtype": dtype, "shape": list(shape), "bytes": size, "xxh3_128": digest}
    if name == "item_order":
        manifest["num_items"] = len(array)
    if name == "trie_codes_2":
        manifest["num_sids"] = len(array)
    arrays = {key: (entry["dtype"], entry["shape"], entry["xxh3_128"]) for key, entry in manifest["arrays"].items()}
    manifest["version"] = content_version(SidLayout(tuple(manifest["codebook_sizes"])), arrays)
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest), encoding="utf-8")


def _open_and_use(directory: Path) -> Catalog:
    catalog = open_catalog(directory)
    positions = np.arange(catalog.num_items)
    if not np.array_equal(catalog.find(catalog.item_ids.take(positions)), positions):
        raise Broken("an item is not found by its id")
    leaves = np.arange(catalog.trie.num_leaves)
    places = locate(catalog.trie, catalog.trie.leaf_sids(leaves).astype(np.int64))
    if not places.are_leaves.all() or not np.array_equal(places.leaves, leaves):
        raise Broken("a leaf is not found by its SID")
    if not np.array_equal(catalog.items_of_leaves(leaves).positions, positions):
        raise Broken("the leaves do not hold all items once")
    for name, column in catalog.attributes.items():
        values = attribute_values(column, positions)
        again = attribute_column(name, pa.array(values, _ARROW_TYPES[column.kind]))
        if {part: fingerprint(array) for part, array in again.arrays().items()} != {
            part: fingerprint(array) for part, array in column.arrays().items()
        }:
            raise Broken(f"the values of {name} make another column")
    return catalog
