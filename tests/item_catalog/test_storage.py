"""The directory format: what was saved comes back, damage is named, and nothing outside or pickled is read."""

import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from item_catalog.attribute_columns import attribute_values
from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.fingerprint import content_version, fingerprint
from item_catalog.sid import SidLayout
from item_catalog.storage import directory as storage
from item_catalog.storage.directory import open_catalog, save_catalog
from item_catalog.storage.manifest import MANIFEST_FILE
from item_catalog.storage.npy import HEADER_BYTES
from tests.item_catalog.attribute_strategies import attributes
from tests.item_catalog.strategies import Rows, rows

LAYOUT = SidLayout((4, 4))
CATALOG = build_catalog(LAYOUT, [[0, 1], [0, 3], [2, 0], [2, 0]], np.array([4, 3, 2, 1]))
TEXT_CATALOG = build_catalog(LAYOUT, [[0, 1], [0, 3], [2, 0]], ["é", "b", "a"])
ATTRIBUTES_CATALOG = build_catalog(
    LAYOUT,
    [[0, 1], [0, 3], [2, 0]],
    np.array([3, 2, 1]),
    {
        "category": pa.array(["toys", None, "books"]),
        "stock": np.array([7, 0, 1]),
        "price": np.array([1.5, np.nan, 0.0]),
        "is_new": np.array([True, False, True]),
    },
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_catalog(CATALOG, tmp_path / "catalog")
    return tmp_path / "catalog"


def assert_same(one: Catalog, other: Catalog) -> None:
    assert (one.version, one.layout, one.item_ids.KIND) == (other.version, other.layout, other.item_ids.KIND)
    assert one.arrays().keys() == other.arrays().keys()
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name], err_msg=name, strict=True)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=rows(), data=st.data())
def test_attributes_round_trip_whatever_the_order_of_rows(drawn: Rows, data: st.DataObject, tmp_path: Path):
    num_rows = len(drawn.item_ids)
    columns = data.draw(attributes(num_rows))
    row_order = data.draw(st.permutations(range(num_rows)))
    catalog = drawn.build(None, columns)
    assert drawn.build(row_order, columns).version == catalog.version

    path = tmp_path / catalog.version
    save_catalog(catalog, path)
    opened = open_catalog(path)
    assert_same(catalog, opened)
    positions = opened.find([str(item_id) for item_id in drawn.item_ids])
    assert {name: attribute_values(column, positions) for name, column in opened.attributes.items()} == {
        name: values.to_pylist() for name, values in columns.items()
    }
    assert [column.kind for column in opened.attributes.values()] == [
        column.kind for column in catalog.attributes.values()
    ]


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=rows())
def test_round_trip(drawn: Rows, tmp_path: Path):
    catalog = drawn.build()
    path = tmp_path / catalog.version
    save_catalog(catalog, path)
    opened = open_catalog(path)
    assert_same(catalog, opened)
    ids = [str(item_id) for item_id in drawn.item_ids]
    assert opened.item_ids.take(opened.find(ids)) == ids
    assert opened.sids_of(opened.find(ids)).tolist() == [list(sid) for sid in drawn.sids]


def test_arrays_are_mapped_read_only_and_plain_numpy_reads_them(saved: Path):
    for name, array in open_catalog(saved).arrays().items():
        assert not array.flags.writeable
        assert isinstance(array.base, np.memmap)
        np.testing.assert_array_equal(np.load(saved / f"{name}.npy", allow_pickle=False), array, strict=True)


def test_files_that_numpy_wrote_itself_are_the_same_bytes_of_array(saved: Path, tmp_path: Path):
    np.save(tmp_path / "codes.npy", CATALOG.trie.codes[1])
    assert (tmp_path / "codes.npy").read_bytes()[HEADER_BYTES:] == (saved / "trie_codes_1.npy").read_bytes()[
        HEADER_BYTES:
    ]


def test_a_newcomer_finds_counts_in_the_manifest(saved: Path):
    document = json.loads((saved / MANIFEST_FILE).read_text())
    assert {name: document[name] for name in ("format_version", "version", "num_items", "num_sids")} == {
        "format_version": 2,
        "version": CATALOG.version,
        "num_items": 4,
        "num_sids": 3,
    }
    assert {path.name for path in saved.iterdir()} == {MANIFEST_FILE, *(f"{name}.npy" for name in document["arrays"])}


def test_saving_the_same_version_again_changes_nothing(saved: Path):
    before = {path: path.stat().st_mtime_ns for path in saved.iterdir()}
    save_catalog(CATALOG, saved)
    assert {path: path.stat().st_mtime_ns for path in saved.iterdir()} == before
    assert os.listdir(saved.parent) == ["catalog"]


@pytest.mark.parametrize("occupant", ["another version", "damaged", "empty directory", "file", "dangling link"])
def test_saving_over_anything_else_is_refused(occupant: str, tmp_path: Path):
    path = tmp_path / "catalog"
    if occupant == "another version":
        save_catalog(TEXT_CATALOG, path)
    elif occupant == "damaged":
        save_catalog(CATALOG, path)
        flip_last_byte(path / "item_ids.npy")
    elif occupant == "empty directory":
        path.mkdir()
    elif occupant == "file":
        path.write_text("mine")
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CatalogError, match=r"catalog: exists .*give another place"):
        save_catalog(CATALOG, path)
    assert os.listdir(tmp_path) == ["catalog"]


def test_a_disk_that_fills_at_any_moment_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Disks tell when they are full as late as on fsync: of each array, of the manifest, of both directories."""
    fsync = os.fsync
    num_flushes = len(ATTRIBUTES_CATALOG.arrays()) + 3
    for full_at in range(num_flushes):
        flushes = iter(range(num_flushes))

        def full_disk(descriptor: int, flushes: Iterator[int] = flushes, full_at: int = full_at) -> None:
            if next(flushes) == full_at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(CatalogError, match=r"catalog: cannot be written: No space left on device; give another"):
            save_catalog(ATTRIBUTES_CATALOG, tmp_path / "catalog")
        assert os.listdir(tmp_path) == []
    monkeypatch.undo()
    save_catalog(ATTRIBUTES_CATALOG, tmp_path / "catalog")
    assert open_catalog(tmp_path / "catalog").version == ATTRIBUTES_CATALOG.version


def test_a_disk_that_fills_within_an_array_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full_disk(path: Path, array: np.ndarray) -> None:
        path.write_bytes(array.tobytes()[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage, "write_array", full_disk)
    with pytest.raises(CatalogError, match=r"catalog: cannot be written: No space left on device"):
        save_catalog(CATALOG, tmp_path / "catalog")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("rival", [CATALOG, TEXT_CATALOG], ids=["same version", "other version"])
def test_a_rival_may_publish_first(rival: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Both write beside the place; the rename of the second fails, and what is there decides."""
    path, write = tmp_path / "catalog", storage._write_directory

    def slow_write(catalog: Catalog, directory: Path) -> None:
        write(catalog, directory)
        write(rival, path)

    monkeypatch.setattr(storage, "_write_directory", slow_write)
    if rival is CATALOG:
        save_catalog(CATALOG, path)
    else:
        with pytest.raises(CatalogError, match="exists with version"):
            save_catalog(CATALOG, path)
    assert os.listdir(tmp_path) == ["catalog"]
    assert open_catalog(path).version == rival.version


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def replace_by_object_array(path: Path) -> None:
    size = path.stat().st_size
    np.save(path, np.array([os.system], object), allow_pickle=True)
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])


def replace_by_pickle(path: Path) -> None:
    size = path.stat().st_size
    path.write_bytes(pickle.dumps(os.system).ljust(size, b"\0"))


def replace_by_other_dtype(path: Path) -> None:
    array = np.load(path)
    np.save(path, array.view(array.dtype.str.replace("i", "u")))


def replace_by_other_shape(path: Path) -> None:
    np.save(path, np.load(path).reshape(1, -1))


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_out(path: Path) -> None:
    outside = path.parent.parent / path.name
    path.rename(outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("verify", [False, True], ids=["quick", "verified"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, r"\d+ bytes instead of \d+"),
        (lengthen, r"\d+ bytes instead of \d+"),
        (replace_by_object_array, "not the .npy of <i8"),
        (replace_by_pickle, "not the .npy of <i8"),
        (replace_by_other_dtype, r"not the .npy of <i8 \[4\]"),
        (replace_by_other_shape, r"not the .npy of <i8 \[4\]"),
        (Path.unlink, "is missing or no file"),
        (replace_by_directory, "is missing or no file"),
        (link_out, "leads out of the catalogue's directory"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damaged_files_are_named(damage: Callable[[Path], None], message: str, verify: bool, saved: Path):
    damage(saved / "item_ids.npy")
    with pytest.raises(CatalogError, match=rf"item_ids\.npy: {message}"):
        open_catalog(saved, verify)


@pytest.mark.parametrize("name", ATTRIBUTES_CATALOG.arrays())
def test_one_altered_byte_anywhere_is_found(name: str, tmp_path: Path):
    save_catalog(ATTRIBUTES_CATALOG, tmp_path / "catalog")
    flip_last_byte(tmp_path / "catalog" / f"{name}.npy")
    with pytest.raises(CatalogError, match=rf"{name}\.npy: its checksum is wrong"):
        open_catalog(tmp_path / "catalog")


def test_a_manifest_that_leads_elsewhere(saved: Path):
    text = (saved / MANIFEST_FILE).read_text()
    (saved / MANIFEST_FILE).write_text(text.replace('"item_ids.npy"', '"../item_ids.npy"'))
    with pytest.raises(CatalogError, match=r"manifest\.json: arrays.item_ids.file: '../item_ids.npy'"):
        open_catalog(saved, verify=False)


def test_a_manifest_that_names_what_no_file_can_be_called(saved: Path):
    text = (saved / MANIFEST_FILE).read_text()
    (saved / MANIFEST_FILE).write_text(text.replace('"item_ids.npy"', '"\\ud800"'))
    with pytest.raises(CatalogError, match=r"cannot be read: .*surrogates not allowed; copy the catalogue again"):
        open_catalog(saved)


def test_a_file_that_is_a_link_to_itself(saved: Path):
    (saved / "item_ids.npy").unlink()
    (saved / "item_ids.npy").symlink_to("item_ids.npy")
    with pytest.raises(CatalogError, match=r"cannot be read: Symlink loop.*; copy the catalogue again"):
        open_catalog(saved)


def test_manifest_that_is_no_text(saved: Path):
    (saved / MANIFEST_FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(CatalogError, match=r"manifest\.json: .*utf-8"):
        open_catalog(saved)


def test_places_without_a_catalogue(tmp_path: Path):
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "absent", tmp_path / "file"):
        with pytest.raises(CatalogError, match="give the directory of a built catalogue"):
            open_catalog(path)


def test_links_to_the_directory_itself_are_fine(saved: Path, tmp_path: Path):
    (tmp_path / "current").symlink_to(saved)
    assert open_catalog(tmp_path / "current").version == CATALOG.version


def forge(directory: Path, catalog: Catalog, name: str, values: list) -> str:
    """Other values under a fresh checksum and version: only the invariants can tell. Returns the version."""
    arrays = catalog.arrays()
    dtype = arrays[name].dtype
    forged = np.array(values, np.uint8).view(bool) if dtype.kind == "b" else np.array(values, dtype)
    header = (directory / f"{name}.npy").read_bytes()[:HEADER_BYTES]
    (directory / f"{name}.npy").write_bytes(header + forged.tobytes())
    fingerprints = {key: fingerprint(forged if key == name else array) for key, array in arrays.items()}
    version = content_version(catalog.layout, fingerprints)
    manifest = json.loads((directory / MANIFEST_FILE).read_text())
    manifest["version"] = version
    manifest["arrays"][name]["xxh3_128"] = fingerprints[name].xxh3_128
    (directory / MANIFEST_FILE).write_text(json.dumps(manifest))
    return version


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("trie_codes_1", [3, 1, 0], "trie: codes of level 1 are not ascending"),
        ("trie_offsets_1", [0, 0, 3], "trie: a node at depth 1 has no children"),
        ("item_offsets", [0, 1, 1, 4], "item_offsets: a SID has no item"),
        ("item_order", [0, 1, 2, 3], "item_order does not sort them"),
    ],
)
def test_forged_but_consistent_checksums_do_not_help(name: str, values: list[int], message: str, saved: Path):
    version = forge(saved, CATALOG, name, values)
    assert open_catalog(saved, verify=False).version == version
    with pytest.raises(CatalogError, match=message):
        open_catalog(saved)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("category.values", [1, 0, 2], "attribute category: a value is not one of 2 texts"),
        ("category.values", [1, 1, 0], "attribute category: a missing value is not 0"),
        ("category.missing", [0, 0, 0], "attribute category: missing: no value is"),
        ("category.missing", [0, 2, 0], "attribute category: missing: a value is neither 0 nor 1"),
        ("category.vocabulary_offsets", [0, 0, 9], "attribute category: a text is not 1 to 256 bytes long"),
        ("category.vocabulary_utf8", list(b"toysbooks"), "attribute category: its texts are not ascending"),
        ("category.vocabulary_utf8", list(b"books\xff\xff\xff\xff"), "attribute category: texts: Invalid UTF8"),
        ("price.values", [np.inf, 0, 0], "attribute price: a value is not finite"),
        ("price.values", [-0.0, 0, 0], "attribute price: a value is -0.0"),
        ("is_new.values", [1, 0, 3], "attribute is_new: a value is neither 0 nor 1"),
    ],
)
def test_forged_attributes_are_found(name: str, values: list, message: str, tmp_path: Path):
    save_catalog(ATTRIBUTES_CATALOG, tmp_path / "catalog")
    forge(tmp_path / "catalog", ATTRIBUTES_CATALOG, f"attribute.{name}", values)
    with pytest.raises(CatalogError, match=rf"catalog: {message}.*; rebuild the catalogue"):
        open_catalog(tmp_path / "catalog")


def test_texts_outside_their_bytes_are_refused_without_verifying(tmp_path: Path):
    """Nothing would hold Arrow back from reading whatever lies there."""
    save_catalog(ATTRIBUTES_CATALOG, tmp_path / "catalog")
    forge(tmp_path / "catalog", ATTRIBUTES_CATALOG, "attribute.category.vocabulary_offsets", [0, 5, 99])
    with pytest.raises(CatalogError, match=r"catalog: attribute category: texts: .*; rebuild the catalogue"):
        open_catalog(tmp_path / "catalog", verify=False)


def test_progress_is_told(saved: Path):
    steps: list[str] = []
    open_catalog(saved, progress=steps.append)
    assert steps[0] == "checksum 1 of 7: trie_offsets_0.npy"
    assert (len(steps), steps[-1]) == (8, "invariants")
    open_catalog(saved, verify=False, progress=steps.append)
    assert len(steps) == 8


def test_a_moved_catalogue_still_opens(saved: Path, tmp_path: Path):
    shutil.move(saved, tmp_path / "elsewhere")
    assert_same(open_catalog(tmp_path / "elsewhere"), CATALOG)
