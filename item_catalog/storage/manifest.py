"""manifest.json of a catalogue directory: what the directory must hold, to the byte.

    format_version   the layout of the directory; this module reads FORMAT_VERSION and nothing else
    version          of the content, see fingerprint.content_version
    codebook_sizes   codes per level
    item_id_kind     "integer" or "text"
    num_items, num_sids
    attributes       what is known of the items, by name: "text", "integer", "number" or "boolean"
    arrays           by name: file, dtype, shape, bytes (of the file), xxh3_128 (of the array's bytes)

A manifest is checked against itself before any array is looked at. This module opens no array.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from item_catalog.attributes import DTYPES, AttributeKind, check_attribute_name
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.fingerprint import ArrayFingerprint, content_version, fingerprint
from item_catalog.item_ids import IntegerIds, TextIds
from item_catalog.sid import SidLayout
from item_catalog.storage.npy import HEADER_BYTES
from item_catalog.trie import offset_dtype

MANIFEST_FILE = "manifest.json"
FORMAT_VERSION = 2

_MANIFEST_FIELDS = {
    "format_version": int,
    "version": str,
    "codebook_sizes": list,
    "item_id_kind": str,
    "num_items": int,
    "num_sids": int,
    "attributes": dict,
    "arrays": dict,
}
_KINDS = [kind.value for kind in AttributeKind]
_ARRAY_FIELDS = {"file": str, "dtype": str, "shape": list, "bytes": int, "xxh3_128": str}


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array: a plain file name inside the directory, the exact size of the file, and what the array is."""

    file: str
    file_bytes: int
    fingerprint: ArrayFingerprint


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest that agrees with itself. `arrays` are by name, as Catalog.arrays gives them."""

    version: str
    layout: SidLayout
    item_id_kind: str
    num_items: int
    num_sids: int
    attributes: Mapping[str, AttributeKind]
    arrays: Mapping[str, StoredArray]

    @classmethod
    def of(cls, catalog: Catalog) -> "Manifest":
        """The manifest of `catalog`; reads every array once."""
        arrays = {}
        for name, array in catalog.arrays().items():
            arrays[name] = StoredArray(f"{name}.npy", HEADER_BYTES + array.nbytes, fingerprint(array))
        return cls(
            catalog.version,
            catalog.layout,
            catalog.item_ids.KIND,
            catalog.num_items,
            catalog.trie.num_leaves,
            {name: column.kind for name, column in catalog.attributes.items()},
            arrays,
        )

    def to_json(self) -> str:
        """The text of manifest.json."""
        arrays = {}
        for name, stored in self.arrays.items():
            array = stored.fingerprint
            arrays[name] = {
                "file": stored.file,
                "dtype": array.dtype,
                "shape": array.shape,
                "bytes": stored.file_bytes,
                "xxh3_128": array.xxh3_128,
            }
        document = {
            "format_version": FORMAT_VERSION,
            "version": self.version,
            "codebook_sizes": self.layout.codebook_sizes,
            "item_id_kind": self.item_id_kind,
            "num_items": self.num_items,
            "num_sids": self.num_sids,
            "attributes": {name: kind.value for name, kind in self.attributes.items()},
            "arrays": arrays,
        }
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Parse and check. Raises CatalogError naming the field, its value and the remedy."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CatalogError(f"not JSON: {error}; copy the catalogue again") from error
        if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
            found = document.get("format_version") if isinstance(document, dict) else document
            raise CatalogError(f"format_version: {found!r}; this release reads {FORMAT_VERSION}; rebuild the catalogue")
        _check_fields("", document, _MANIFEST_FIELDS)
        _check_integers("codebook_sizes", document["codebook_sizes"])
        attributes = {name: _attribute_kind(name, kind) for name, kind in document["attributes"].items()}
        arrays = {name: _stored_array(f"arrays.{name}", entry) for name, entry in document["arrays"].items()}
        manifest = cls(
            document["version"],
            SidLayout(tuple(document["codebook_sizes"])),
            document["item_id_kind"],
            document["num_items"],
            document["num_sids"],
            attributes,
            arrays,
        )
        manifest._check()
        return manifest

    def _check(self) -> None:
        if self.item_id_kind not in (IntegerIds.KIND, TextIds.KIND):
            raise CatalogError(f"item_id_kind: {self.item_id_kind!r}; it is {IntegerIds.KIND!r} or {TextIds.KIND!r}")
        expected = self._expected_arrays()
        if self.arrays.keys() != expected.keys():
            stray = ", ".join(sorted(self.arrays.keys() ^ expected.keys()))
            raise CatalogError(f"arrays: missing or unknown: {stray}; rebuild the catalogue")
        for name, (dtype, shape) in expected.items():
            stored = self.arrays[name]
            found = stored.fingerprint
            if (found.dtype, found.shape) != (dtype.str, shape):
                raise CatalogError(
                    f"arrays.{name}: {found.dtype} of shape {list(found.shape)}, but the counts ask for "
                    f"{dtype.str} of shape {list(shape)}; rebuild the catalogue"
                )
            file_bytes = HEADER_BYTES + dtype.itemsize * prod(shape)
            if stored.file_bytes != file_bytes:
                raise CatalogError(
                    f"arrays.{name}.bytes: {stored.file_bytes}; such an array has {file_bytes}; rebuild the catalogue"
                )
        version = content_version(self.layout, {name: stored.fingerprint for name, stored in self.arrays.items()})
        if self.version != version:
            raise CatalogError(f"version: {self.version}, but its arrays make it {version}; copy the catalogue again")

    def _expected_arrays(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Dtype and shape of every array. Counts that only the arrays themselves tell are taken from them."""
        levels = range(self.layout.num_levels)
        num_nodes = [1, *(self._length_of(f"trie_codes_{level}") for level in levels)]
        num_nodes[-1] = self.num_sids
        expected: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        for level, (parents, children) in enumerate(pairwise(num_nodes)):
            expected[f"trie_offsets_{level}"] = (offset_dtype(children), (parents + 1,))
            expected[f"trie_codes_{level}"] = (np.dtype(np.uint16), (children,))
        expected["item_offsets"] = (offset_dtype(self.num_items), (self.num_sids + 1,))
        if self.item_id_kind == IntegerIds.KIND:
            expected["item_ids"] = (np.dtype(np.int64), (self.num_items,))
        else:
            expected["item_id_offsets"] = (np.dtype(np.int64), (self.num_items + 1,))
            expected["item_id_utf8"] = (np.dtype(np.uint8), (self._length_of("item_id_utf8"),))
        expected["item_order"] = (offset_dtype(self.num_items), (self.num_items,))
        for name, kind in self.attributes.items():
            expected |= self._expected_attribute(f"attribute.{name}", kind)
        return expected

    def _expected_attribute(self, name: str, kind: AttributeKind) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Of the parts, `missing` and the vocabulary are there only if something is, and some text occurs."""
        expected: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {
            f"{name}.values": (DTYPES[kind], (self.num_items,))
        }
        if f"{name}.missing" in self.arrays:
            expected[f"{name}.missing"] = (np.dtype(np.bool_), (self.num_items,))
        offsets, utf8 = f"{name}.vocabulary_offsets", f"{name}.vocabulary_utf8"
        if kind is AttributeKind.TEXT and not self.arrays.keys().isdisjoint((offsets, utf8)):
            expected[offsets] = (np.dtype(np.int64), (self._length_of(offsets),))
            expected[utf8] = (np.dtype(np.uint8), (self._length_of(utf8),))
        return expected

    def _length_of(self, name: str) -> int:
        if name not in self.arrays or not self.arrays[name].fingerprint.shape:
            raise CatalogError(f"arrays.{name}: missing, or of no length; rebuild the catalogue")
        return self.arrays[name].fingerprint.shape[0]


def _attribute_kind(name: str, kind: Any) -> AttributeKind:
    check_attribute_name(name)
    if kind not in _KINDS:
        kinds = ", ".join(_KINDS)
        raise CatalogError(f"attributes.{name}: {kind!r}; this release knows {kinds}; copy the catalogue again")
    return AttributeKind(kind)


def _stored_array(where: str, entry: Any) -> StoredArray:
    _check_fields(where, entry, _ARRAY_FIELDS)
    file = entry["file"]
    if file in ("", "..") or Path(file).name != file or "\0" in file:
        raise CatalogError(f"{where}.file: {file!r}; it must be the name of a file inside the catalogue's directory")
    _check_integers(f"{where}.shape", entry["shape"])
    return StoredArray(file, entry["bytes"], ArrayFingerprint(entry["dtype"], tuple(entry["shape"]), entry["xxh3_128"]))


def _check_fields(where: str, document: Any, fields: Mapping[str, type[Any]]) -> None:
    if not isinstance(document, dict) or document.keys() != fields.keys():
        raise CatalogError(f"{where or 'its fields'}: must be exactly {', '.join(fields)}; copy the catalogue again")
    for name, kind in fields.items():
        value = document[name]
        if type(value) is not kind or (kind is int and value < 1):
            path = f"{where}.{name}".lstrip(".")
            raise CatalogError(
                f"{path}: {value!r} is no {kind.__name__} that can stand there; copy the catalogue again"
            )


def _check_integers(where: str, values: list[Any]) -> None:
    for value in values:
        if type(value) is not int or value < 1:
            raise CatalogError(f"{where}: {values!r}; it must be a list of positive integers")
