"""Whatever is damaged, missing, full or wrong is named, and what was live stays live."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.storage import directory as storage
from item_catalog.storage import durable_files
from item_catalog.storage.directory import save_catalog
from item_catalog.updating import store_state, update_log
from item_catalog.updating.store import CatalogStore
from item_catalog.updating.update_log import LOG_START, encode_updates
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
from tests.item_catalog.small_stores import ADD_9, ONE, REMOVE_1, THREE, TWO, apply, files, live


@pytest.fixture
def store(tmp_path: Path) -> CatalogStore:
    return CatalogStore.create(tmp_path / "store", ONE)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        pytest.param("../../etc", r"version: '\.\./\.\./etc'; give the 32 hexadecimal digits of one", id="path"),
        pytest.param("A" * 32, "give the 32 hexadecimal digits", id="capitals"),
        pytest.param("0" * 32 + "\n", "give the 32 hexadecimal digits", id="line end"),
        pytest.param("0" * 32, f"version: {'0' * 32} is not in the store; publish it, or give one of", id="unknown"),
    ],
)
def test_versions_that_are_none(version: str, message: str, store: CatalogStore):
    for method in (store.load, store.activate):
        with pytest.raises(CatalogError, match=message):
            method(version)


def test_a_damaged_version_is_refused_by_name_and_what_was_live_stays(store: CatalogStore):
    store.publish(TWO, activate=False)
    (store.path / "versions" / TWO.version / "manifest.json").unlink()
    for method in (store.load, store.activate):
        with pytest.raises(CatalogError, match=rf"{TWO.version}/manifest\.json: No such file"):
            method(TWO.version)
    assert [stored.version for stored in store.versions()] == [ONE.version]
    assert (live(store), store.head().base) == (["1", "2"], ONE.version)


def test_a_version_under_another_name_is_refused(store: CatalogStore):
    store.publish(TWO, activate=False)
    directory = store.path / "versions" / TWO.version
    shutil.rmtree(directory)
    save_catalog(THREE, directory)
    with pytest.raises(CatalogError, match=f"{TWO.version}: holds version {THREE.version}; publish that one"):
        store.load(TWO.version)


def test_what_a_killed_publisher_left_is_ignored_and_goes_with_the_next(store: CatalogStore):
    half = store.path / "versions" / f".{TWO.version}.0123"
    half.mkdir()
    (half / "trie_codes_0.npy").write_bytes(b"half")
    assert [stored.version for stored in store.versions()] == [ONE.version]
    store.publish(TWO)
    assert not half.exists()


def test_a_damaged_log_is_named(store: CatalogStore):
    apply(store, ADD_9)
    (log,) = (store.path / "updates").iterdir()
    log.write_bytes(log.read_bytes()[:-1] + b"\0")
    with pytest.raises(CatalogError, match=r"\.1\.log: damaged at byte 0: the checksum of its batch is wrong"):
        store.load()
    log.unlink()
    with pytest.raises(CatalogError, match=r"\.1\.log: cannot be read: No such file or directory; restore it"):
        store.load()
    with pytest.raises(CatalogError, match=r"\.1\.log: cannot be read: No such file or directory; restore it"):
        store.head()


@pytest.mark.parametrize(
    ("updates", "before", "message"),
    [
        (
            REMOVE_1,
            ONE.version,
            rf"\.1\.log: leads to version [0-9a-f]{{32}}, not to {THREE.version} as it says; restore",
        ),
        (ItemUpdates((ItemUpsert("7"),)), ONE.version, r"\.1\.log: does not fit its version \(upserts\[0\]\.sid: none"),
        (REMOVE_1, TWO.version, rf"\.1\.log: goes on from version {TWO.version}, not from {ONE.version} where it is"),
    ],
    ids=["other content", "impossible", "other beginning"],
)
def test_a_log_of_something_else_is_named(updates: ItemUpdates, before: str, message: str, store: CatalogStore):
    (log,) = (store.path / "updates").iterdir()
    update_log.append(log, LOG_START, encode_updates(updates), before, THREE.version)
    with pytest.raises(CatalogError, match=message):
        store.load()


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def full(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("module", "function"),
    [(storage, "write_array"), (store_state, "replace_text"), (update_log, "_write_all"), (durable_files.os, "fsync")],
    ids=["array", "state", "log", "fsync"],
)
def test_a_full_disk_leaves_what_was_live(
    module: object, function: str, store: CatalogStore, monkeypatch: pytest.MonkeyPatch
):
    store.publish(TWO)
    snapshot = apply(store, ADD_9)
    changes = {
        "write_array": [lambda: store.publish(THREE), lambda: store.compact(snapshot)],
        "replace_text": [lambda: store.publish(THREE), store.rollback, lambda: store.activate(ONE.version)],
        "_write_all": [lambda: store.apply(REMOVE_1, snapshot)],
        "fsync": [lambda: store.publish(THREE), lambda: store.apply(REMOVE_1, snapshot), store.rollback],
    }
    head = store.head()
    monkeypatch.setattr(module, function, full)
    for change in changes[function]:
        with pytest.raises(CatalogError, match=r"cannot be written: No space left on device"):
            change()
    monkeypatch.undo()
    assert store.head() == head
    assert store.previous() == ONE.version
    assert live(store) == ["1", "2", "3", "9"]
    store.publish(THREE)
    assert live(store) == ["4"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format_version": 2}', '{"format_version": 1, "current": 3, "history": [], "logs": {}}'],
    ids=["empty", "list", "no fields", "format", "current"],
)
def test_a_state_that_is_none(text: str, store: CatalogStore):
    (store.path / "CURRENT.json").write_text(text)
    with pytest.raises(CatalogError, match=r"CURRENT\.json: (not JSON|no state of a store).*; restore it"):
        CatalogStore(store.path)


def test_a_state_that_leads_elsewhere(store: CatalogStore):
    state = json.loads((store.path / "CURRENT.json").read_text())
    state["current"]["version"] = "../../elsewhere"
    (store.path / "CURRENT.json").write_text(json.dumps(state))
    with pytest.raises(CatalogError, match=r"'\.\./\.\./elsewhere' is no version"):
        store.head()


def test_places_that_are_no_store(store: CatalogStore, tmp_path: Path):
    save_catalog(ONE, tmp_path / "catalog")
    (tmp_path / "file").touch()
    with pytest.raises(CatalogError, match=r"CURRENT\.json: No such file or directory; give the directory of a store"):
        CatalogStore(tmp_path / "catalog")
    with pytest.raises(CatalogError, match=r"catalog: holds .*; give a new or empty directory"):
        CatalogStore.create(tmp_path / "catalog", ONE)
    with pytest.raises(CatalogError, match=r"file: cannot be made a store: .*; give another place"):
        CatalogStore.create(tmp_path / "file", ONE)
    with pytest.raises(CatalogError, match=r"store: holds CURRENT\.json; give a new or empty directory"):
        CatalogStore.create(store.path, ONE)


def test_creating_goes_on_where_a_killed_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_state, "replace_text", full)
    with pytest.raises(CatalogError, match=r"CURRENT\.json: cannot be written"):
        CatalogStore.create(tmp_path / "store", ONE)
    monkeypatch.undo()
    assert live(CatalogStore.create(tmp_path / "store", ONE)) == ["1", "2"]


def test_a_lock_that_is_held_for_too_long(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(durable_files, "_LOCK_SECONDS", 0.05)
    with (
        durable_files.exclusive(store.path / "LOCK"),
        pytest.raises(CatalogError, match=r"LOCK: locked by another process for 0 s; try again later"),
    ):
        store.activate(ONE.version)
    assert os.listdir(store.path / "versions") == [ONE.version]


@pytest.mark.parametrize(
    "go_back", [CatalogStore.rollback, lambda store: store.activate(ONE.version)], ids=["back", "to"]
)
@pytest.mark.parametrize("part", ["array", "log"])
def test_what_is_damaged_does_not_become_current(
    part: str, go_back: Callable[[CatalogStore], None], store: CatalogStore
):
    apply(store, ADD_9)
    (log,) = (store.path / "updates").iterdir()
    store.publish(TWO)
    damage(log if part == "log" else store.path / "versions" / ONE.version / "item_ids.npy")
    before = store.head()
    with pytest.raises(CatalogError, match=r"the checksum of its batch is wrong|item_ids\.npy: its checksum is wrong"):
        go_back(store)
    assert (store.head(), live(store)) == (before, ["1", "2", "3"])


def test_going_back_while_others_do_goes_back_once(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    store.publish(TWO)
    store.publish(THREE)
    open_catalog = storage.open_catalog

    def open_while_others_go_back(path: Path, verify: bool = True) -> Catalog:
        monkeypatch.undo()
        CatalogStore(store.path).rollback()
        return open_catalog(path, verify)

    monkeypatch.setattr("item_catalog.updating.store.open_catalog", open_while_others_go_back)
    with pytest.raises(
        CatalogError, match=rf"store: has changed while {TWO.version} was verified; look, and try again"
    ):
        store.rollback()
    assert store.head().base == TWO.version


def test_a_store_that_lost_its_state_is_not_made_anew(store: CatalogStore):
    apply(store, ADD_9)
    (store.path / "CURRENT.json").unlink()
    before = files(store.path)
    with pytest.raises(
        CatalogError,
        match=rf"store: holds updates of a store, {ONE.version}\.1\.log, and no CURRENT\.json; restore that",
    ):
        CatalogStore.create(store.path, TWO)
    assert files(store.path) == before


def test_a_strange_directory_is_left_as_it_is(tmp_path: Path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CatalogError, match=r"holds notes\.txt; give a new or empty directory"):
        CatalogStore.create(tmp_path, ONE)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_what_could_not_be_published_leaves_nothing(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    snapshot = apply(store, ADD_9)
    before = files(store.path)
    monkeypatch.setattr(store_state, "replace_text", full)
    for change in (lambda: store.publish(TWO), lambda: store.publish(ONE), lambda: store.compact(snapshot)):
        with pytest.raises(CatalogError, match=r"CURRENT\.json: cannot be written"):
            change()
    without_locks = {name: content for name, content in files(store.path).items() if not name.endswith("LOCK")}
    assert without_locks == {name: content for name, content in before.items() if not name.endswith("LOCK")}


def test_a_damaged_version_is_published_anew(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    store.publish(TWO)
    damaged = store.path / "versions" / TWO.version / "item_ids.npy"
    damage(damaged)
    content = damaged.read_bytes()
    monkeypatch.setattr(storage, "write_array", full)
    with pytest.raises(CatalogError, match="cannot be written"):
        store.publish(TWO)
    assert damaged.read_bytes() == content  # set aside no longer than it takes
    monkeypatch.undo()
    store.publish(TWO)
    assert live(store) == ["1", "2", "3"]
    assert sorted(os.listdir(store.path / "versions")) == sorted([ONE.version, TWO.version])


def test_a_state_that_may_not_outlast_a_power_cut_is_taken_back(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    flush = durable_files.flush_directory

    def fail(directory: Path) -> None:
        if directory == store.path:
            raise OSError(5, "Input/output error")
        flush(directory)

    monkeypatch.setattr(durable_files, "flush_directory", fail)
    with pytest.raises(CatalogError, match=r"CURRENT\.json: cannot be written: Input/output error"):
        store.publish(TWO)
    assert (store.head().base, live(store)) == (ONE.version, ["1", "2"])
    with pytest.raises(OSError, match="Input/output error"):
        durable_files.replace_text(store.path / "new", "text")
    assert not (store.path / "new").exists()


def test_names_that_a_store_does_not_give_are_left_alone(store: CatalogStore):
    strangers = {"updates": f"{TWO.version}.bak.log", "versions": "README"}
    for directory, name in strangers.items():
        (store.path / directory / name).touch()
        (store.path / directory / "backup").mkdir()
    store.publish(TWO)
    assert store.prune(keep=0) == [ONE.version]
    for directory, name in strangers.items():
        assert {name, "backup"} < set(os.listdir(store.path / directory))
    assert store.prune(keep=0) == []


def test_what_the_disk_refuses_is_a_catalog_error(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    store.publish(TWO)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(CatalogError, match="store: No space left on device; check the disk and the permissions"):
            store.prune(keep=0)
    with monkeypatch.context() as patch:
        patch.setattr(durable_files.fcntl, "flock", full)
        with pytest.raises(CatalogError, match=r"LOCK: cannot be locked: No space left on device"):
            store.apply(REMOVE_1, store.load())
    assert store.prune(keep=0) == [ONE.version]


def test_too_large_a_batch_is_refused_before_any_work(store: CatalogStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(update_log, "MAX_PAYLOAD_BYTES", 10)
    monkeypatch.setattr("item_catalog.updating.store.apply_resolved", full)
    with pytest.raises(CatalogError, match="bytes in one batch; give at most 10, in several batches"):
        apply(store, ADD_9)


def test_text_that_no_file_can_hold_is_named(store: CatalogStore):
    with pytest.raises(CatalogError, match=r"removals\[1\]: '\\ud800'; give UTF-8 text"):
        apply(store, ItemUpdates(removals=("", "\ud800")))
    assert store.head().log_bytes == 0
