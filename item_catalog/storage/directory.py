"""Catalogues on disk: a directory of manifest.json and one .npy for each array, published whole and mapped on open.

A directory is never half-published: it is written beside its place, flushed, and renamed into it. Nothing pickled is
ever read, and nothing outside the directory.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.fingerprint import fingerprint
from item_catalog.storage.durable_files import flush_directory
from item_catalog.storage.manifest import MANIFEST_FILE, Manifest, StoredArray
from item_catalog.storage.npy import map_array, write_array


def save_catalog(catalog: Catalog, path: Path) -> None:
    """Publish `catalog` as the directory `path`. Nothing is done when `path` already holds the same version, intact.

    Raises CatalogError when `path` is anything else that exists, or when writing fails; then nothing is left behind.
    """
    if path.exists() or path.is_symlink():
        _require_same_version(catalog, path)
        return
    staging = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        _write_directory(catalog, staging)
        staging.rename(path)
    except OSError as error:
        if path.exists():  # somebody else published in the meantime
            _require_same_version(catalog, path)
            return
        raise CatalogError(f"{path}: cannot be written: {error.strerror}; give another place") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    try:
        flush_directory(path.parent)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise CatalogError(f"{path}: cannot be written: {error.strerror}; give another place") from error


def open_catalog(path: Path, verify: bool = True, progress: Callable[[str], None] = lambda _step: None) -> Catalog:
    """The catalogue in the directory `path`, its arrays mapped read-only.

    Always checked: the manifest, and each file's presence, exact size, dtype and shape. With `verify` also every
    checksum and every invariant, which reads the arrays twice. Without it, damage inside an array goes unseen.

    progress: is told what is being verified.

    Raises CatalogError naming the file, what is wrong with it and the remedy.
    """
    manifest = _read_manifest(path)
    try:
        arrays = {name: _map(path, stored) for name, stored in manifest.arrays.items()}
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror}; check its permissions") from error
    except (ValueError, RuntimeError) as error:  # a name that no file can have, a link that leads to itself
        raise CatalogError(f"{path}: cannot be read: {error}; copy the catalogue again") from error
    if verify:
        for number, (name, stored) in enumerate(manifest.arrays.items()):
            progress(f"checksum {number + 1} of {len(manifest.arrays)}: {stored.file}")
            if fingerprint(arrays[name]) != stored.fingerprint:
                raise CatalogError(f"{path / stored.file}: its checksum is wrong; copy the catalogue again")
    try:
        catalog = Catalog.from_arrays(
            manifest.layout, manifest.item_id_kind, manifest.attributes, arrays, manifest.version
        )
        if verify:
            progress("invariants")
            catalog.check()
    except CatalogError as error:
        raise CatalogError(f"{path}: {error}") from error
    return catalog


def _require_same_version(catalog: Catalog, path: Path) -> None:
    try:
        existing = open_catalog(path).version
    except CatalogError as error:
        raise CatalogError(f"{path}: exists and is no sound catalogue ({error}); give another place") from error
    if existing != catalog.version:
        raise CatalogError(f"{path}: exists with version {existing}, not {catalog.version}; give another place")


def _write_directory(catalog: Catalog, directory: Path) -> None:
    directory.mkdir(parents=True)
    manifest = Manifest.of(catalog)
    for name, array in catalog.arrays().items():
        write_array(directory / manifest.arrays[name].file, array)
    with (directory / MANIFEST_FILE).open("x", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    flush_directory(directory)


def _read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST_FILE
    try:
        return Manifest.from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogError(f"{file}: {error.strerror}; give the directory of a built catalogue") from error
    except (CatalogError, UnicodeDecodeError) as error:
        raise CatalogError(f"{file}: {error}") from error


def _map(directory: Path, stored: StoredArray) -> NDArray[np.generic]:
    file = directory / stored.file
    if file.resolve().parent != directory.resolve():
        raise CatalogError(f"{file}: leads out of the catalogue's directory; copy the catalogue again, without links")
    array = stored.fingerprint
    return map_array(file, np.dtype(array.dtype), array.shape, stored.file_bytes)
