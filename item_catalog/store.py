"""A catalogue that changes: published versions, and the updates that came since, in one directory.

    CURRENT.json                      which version is current; see store_state
    versions/<version>/               a catalogue as save_catalog writes it, never changed
    updates/<version>.<number>.log    batches of updates to it; see update_log

What is live is the current version with all updates of its log. Each change is one replaced file or one appended frame,
on the disk before the call returns, under a lock that every process of the machine obeys; readers take none. A process
may die at any point: the store is then as it was before the change, or after it.

Going to another version leaves the updates of the one before where they are: a version that comes back, by `activate`
or `rollback`, comes back with the updates it had, and further ones go to its log. Only publishing a version that has
had updates begins it anew, with none. This module knows no network and no engine.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from item_catalog.apply import Applied, apply_updates
from item_catalog.catalog import Catalog
from item_catalog.durable_files import create_empty, exclusive, flush_directory, staging_name
from item_catalog.errors import CatalogError
from item_catalog.manifest import MANIFEST_FILE, Manifest
from item_catalog.storage import open_catalog, save_catalog
from item_catalog.store_state import STATE_FILE, Line, StoreState
from item_catalog.update_log import append, read_log
from item_catalog.updates import ItemUpdates, combined

_VERSIONS, _UPDATES, _LOCK, _PUBLISH_LOCK = "versions", "updates", "LOCK", "PUBLISH.LOCK"
_PARTS = {_VERSIONS, _UPDATES, _LOCK, _PUBLISH_LOCK, staging_name(STATE_FILE)}


@dataclass(frozen=True, slots=True)
class Head:
    """A state of the store's content: a version, the number of its log, and how many bytes of that count."""

    base: str
    log: int
    log_bytes: int

    @property
    def line(self) -> Line:
        """The version and the file of its updates, however many of them count."""
        return Line(self.base, self.log)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A catalogue from a store, and which state of the store it is. `catalog.version` is head.base without updates."""

    catalog: Catalog
    head: Head


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A published version: when, in seconds since 1970, counts of what was, and bytes of the updates to it since."""

    version: str
    is_current: bool
    published: float
    codebook_sizes: tuple[int, ...]
    num_items: int
    num_sids: int
    array_bytes: int
    update_bytes: int


def is_store(path: Path) -> bool:
    """Whether `path` is the directory of a store."""
    return (path / STATE_FILE).is_file()


class CatalogStore:
    """The store in the directory `path`. Holds nothing open; methods may be called from any thread.

    Every method raises CatalogError, naming file, value and remedy, when the store is damaged or cannot be written; it
    is then as it was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        StoreState.read(path)

    @classmethod
    def create(cls, path: Path, catalog: Catalog) -> "CatalogStore":
        """A new store whose current version is `catalog`. `path` must not exist, or be empty, or left half-made."""
        try:
            (path / _VERSIONS).mkdir(parents=True, exist_ok=True)
            (path / _UPDATES).mkdir(exist_ok=True)
            strangers = {file.name for file in path.iterdir()} - _PARTS
        except OSError as error:
            raise CatalogError(f"{path}: cannot be made a store: {error.strerror}; give another place") from error
        if strangers:
            raise CatalogError(f"{path}: holds {min(strangers)}; give a new or empty directory")
        store = cls.__new__(cls)
        store.path = path
        with store._publishing(), exclusive(path / _LOCK):
            if is_store(path):
                raise CatalogError(f"{path}: has become a store meanwhile; publish into it")
            save_catalog(catalog, store._directory(catalog.version))
            line = store._new_log(catalog.version)
            StoreState(line, (), {line.version: line.log}).write(path)
            flush_directory(path.parent)
        return store

    def head(self) -> Head:
        """What is live now. Reads no array, and costs next to nothing; bytes of a torn tail count here."""
        return self._head(StoreState.read(self.path).current)

    def previous(self) -> str | None:
        """The version that `rollback` would go to."""
        history = StoreState.read(self.path).history
        return history[-1].version if history else None

    def versions(self) -> list[StoredVersion]:
        """What is published, the oldest first, without those whose directory is damaged."""
        state = StoreState.read(self.path)
        found = []
        for version in state.logs:
            file = self._directory(version) / MANIFEST_FILE
            try:
                manifest = Manifest.from_json(file.read_text(encoding="utf-8"))
                stored = StoredVersion(
                    version=version,
                    is_current=version == state.current.version,
                    published=file.stat().st_mtime,
                    codebook_sizes=manifest.layout.codebook_sizes,
                    num_items=manifest.num_items,
                    num_sids=manifest.num_sids,
                    array_bytes=sum(array.file_bytes for array in manifest.arrays.values()),
                    update_bytes=self._head(state.line_of(version)).log_bytes,
                )
            except (CatalogError, OSError, UnicodeDecodeError):
                continue
            found.append(stored)
        return sorted(found, key=lambda stored: stored.published)

    def load(self, version: str = "", verify: bool = True) -> Snapshot:
        """A published version, empty for the current one, with the updates to it; arrays mapped where none change them.

        verify: see open_catalog. That updates replay to the content they were made for is always checked.
        """
        while True:
            state = StoreState.read(self.path)
            line = state.line_of(version) if version else state.current
            try:
                return self._load(line, verify)
            except CatalogError:
                if StoreState.read(self.path) == state:  # else it may have been pruned while it was read
                    raise

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """What is live now, by reading only what came since `snapshot`, if it is of the same line.

        The same object when nothing changed.
        """
        head = self.head()
        if head == snapshot.head:
            return snapshot
        before = snapshot.head
        if head.line != before.line or head.log_bytes < before.log_bytes:
            return self.load()
        return self._caught_up(snapshot)

    def publish(self, catalog: Catalog, activate: bool = True) -> None:
        """Write a version, and make it current if `activate`. What is current already, without updates, stays.

        Updates go on while it is written. When it cannot be, nothing of it is left.
        """
        version = catalog.version
        with self._publishing():
            save_catalog(catalog, self._directory(version))
            with self._changing() as state:
                line = state.line_of(version) if version in state.logs else None
                if line is None or (activate and self._head(line).log_bytes):
                    line = self._new_log(version)
                self._write(state, self._activated(state.with_log(line), line) if activate else state.with_log(line))

    def activate(self, version: str) -> None:
        """Make a published version current, with the updates to it. One that is current already stays."""
        with self._changing() as state:
            line = state.line_of(version)
            self._require_openable(line)
            self._write(state, self._activated(state, line))

    def rollback(self) -> str:
        """Make current what was before the current version, and return it. Again goes one further back, not forth."""
        with self._changing() as state:
            if not state.history:
                raise CatalogError(f"{self.path}: no version was current before {state.current.version}; activate one")
            line = state.history[-1]
            self._require_openable(line)
            self._write(state, replace(state.with_log(line), current=line, history=state.history[:-1]))
        return line.version

    def apply(self, updates: ItemUpdates, snapshot: Snapshot) -> tuple[Snapshot, Applied]:
        """Change what is live. On the disk when it returns, unless it changes nothing.

        snapshot: of the store; what others did since is done to it first.

        Raises CatalogError as apply_updates does; then, as on any error, the store is as it was.
        """
        with self._changing():
            snapshot = self.refresh(snapshot)
            applied = apply_updates(snapshot.catalog, updates)
            if applied.catalog is snapshot.catalog:
                return snapshot, applied
            head, version = snapshot.head, applied.catalog.version
            end = append(self._log(head.line), head.log_bytes, updates, version)
            return Snapshot(applied.catalog, replace(head, log_bytes=end)), applied

    def compact(self, snapshot: Snapshot) -> Snapshot:
        """Publish what is live as a version without updates, in the place of the current one: later loads are quick.

        Updates go on while it is written; what came meanwhile stays behind it as updates. The history stays as it is.
        """
        snapshot = self.refresh(snapshot)
        before = snapshot.head.line
        if not snapshot.head.log_bytes:
            return snapshot
        with self._publishing():
            save_catalog(snapshot.catalog, self._directory(snapshot.catalog.version))
            with self._changing() as state:
                if state.current != before:  # another version went live meanwhile
                    return self.load()
                line = self._new_log(snapshot.catalog.version)
                end = 0
                for logged in read_log(self._log(before), snapshot.head.log_bytes):
                    end = append(self._log(line), end, logged.updates, logged.version)
                self._write(state, replace(state.with_log(line), current=line))
        return self._caught_up(Snapshot(snapshot.catalog, Head(line.version, line.log, 0)))

    def prune(self, keep: int) -> list[str]:
        """Remove versions, with the updates to them, but the current one and the last `keep` that were before it.

        Those that were published and never made current go too. Returns what was removed. Processes that have a removed
        version open keep it until they close it.
        """
        with self._publishing(), self._changing() as state:
            history = state.history[len(state.history) - keep :] if keep < len(state.history) else state.history
            kept = {state.current, *history}
            versions = {line.version for line in kept}
            logs = {version: log for version, log in state.logs.items() if version in versions}
            self._write(state, replace(state, history=history, logs=logs))
            named = {self._log(line) for line in kept} | {self._log(Line(*entry)) for entry in logs.items()}
            for log in set((self.path / _UPDATES).iterdir()) - named:
                log.unlink()
            removed = sorted({file.name for file in (self.path / _VERSIONS).iterdir()} - versions)
            for version in removed:
                self._remove_directory(version)
        return removed

    def _load(self, line: Line, verify: bool) -> Snapshot:
        directory = self._directory(line.version)
        catalog = open_catalog(directory, verify)
        if catalog.version != line.version:
            raise CatalogError(f"{directory}: holds version {catalog.version}; publish that one, and remove this")
        return self._caught_up(Snapshot(catalog, Head(line.version, line.log, 0)))

    def _caught_up(self, snapshot: Snapshot) -> Snapshot:
        """With the updates that its log holds beyond it; the same object when there are none."""
        head, log = snapshot.head, self._log(snapshot.head.line)
        logged = list(read_log(log, head.log_bytes))
        if not logged:
            return snapshot
        updates = combined((batch.updates for batch in logged), snapshot.catalog.attributes)
        try:
            catalog = apply_updates(snapshot.catalog, updates).catalog
        except CatalogError as error:
            raise CatalogError(f"{log}: does not fit its version ({error}); restore it") from error
        if catalog.version != logged[-1].version:
            raise CatalogError(
                f"{log}: leads to version {catalog.version}, not to {logged[-1].version} as it says; restore it"
            )
        return Snapshot(catalog, replace(head, log_bytes=logged[-1].end))

    def _head(self, line: Line) -> Head:
        log = self._log(line)
        try:
            return Head(line.version, line.log, log.stat().st_size)
        except OSError as error:
            raise CatalogError(f"{log}: cannot be read: {error.strerror}; restore it") from error

    def _require_openable(self, line: Line) -> None:
        self._head(line)
        open_catalog(self._directory(line.version), verify=False)

    def _activated(self, state: StoreState, line: Line) -> StoreState:
        return state if line == state.current else state.moved_to(line)

    def _new_log(self, version: str) -> Line:
        """An empty log for the version, beside those it has had."""
        directory = self.path / _UPDATES
        numbers = [int(log.name.split(".")[1]) for log in directory.glob(f"{version}.*.log")]
        line = Line(version, max(numbers, default=0) + 1)
        try:
            create_empty(self._log(line))
        except OSError as error:
            raise CatalogError(f"{self._log(line)}: cannot be written: {error.strerror}; free space") from error
        return line

    def _directory(self, version: str) -> Path:
        return self.path / _VERSIONS / version

    def _log(self, line: Line) -> Path:
        return self.path / _UPDATES / f"{line.version}.{line.log}.log"

    def _write(self, before: StoreState, after: StoreState) -> None:
        if after != before:
            after.write(self.path)

    @contextmanager
    def _changing(self) -> Iterator[StoreState]:
        """Be the only one who changes what is current and what is in its log."""
        with exclusive(self.path / _LOCK):
            yield StoreState.read(self.path)

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        """Be the only one who writes or removes versions. What others left half-written when they died goes first."""
        with exclusive(self.path / _PUBLISH_LOCK):
            for leftover in (self.path / _VERSIONS).glob(".*"):
                shutil.rmtree(leftover, ignore_errors=True)
            yield

    def _remove_directory(self, version: str) -> None:
        """At once, as seen by others."""
        doomed = self.path / _VERSIONS / f".{version}.{uuid4().hex}"
        self._directory(version).rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)
