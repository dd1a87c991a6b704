"""A catalogue that changes: published versions, and the updates that came since, in one directory.

What is live is the current version with all updates of its log. Each change is one replaced file or one appended frame,
on the disk before the call returns, under a lock that every process of the machine obeys; readers take none. A process
may die at any point: the store is then as it was before the change, or after it.

Going to another version leaves the updates of the one before where they are: a version that comes back, by `activate`
or `rollback`, comes back with the updates it had, and further ones go to its log. Only publishing a version that has
had updates begins it anew, with none. Where the files are is known to store_files, what is current to store_state and
what a log holds to update_log; this module knows no network and no engine.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.storage.directory import open_catalog
from item_catalog.storage.durable_files import flush_directory
from item_catalog.storage.manifest import MANIFEST_FILE, Manifest
from item_catalog.updating.apply import Applied, apply_resolved, apply_updates
from item_catalog.updating.resolved_updates import resolve
from item_catalog.updating.store_files import StoreFiles
from item_catalog.updating.store_state import STATE_FILE, Line, StoreState
from item_catalog.updating.update_log import LOG_START, LogEnd, append, encode_updates, log_end, read_log
from item_catalog.updating.updates import ItemUpdates, combined

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class Head:
    """A state of the store's content: a version, the number of its log, and where in that the last batch ends."""

    base: str
    log: int
    end: LogEnd = LOG_START

    @property
    def line(self) -> Line:
        """The version and the file of its updates, however many of them count."""
        return Line(self.base, self.log)

    @property
    def log_bytes(self) -> int:
        """Of the updates that count."""
        return self.end.offset


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
        self._files = StoreFiles(path)
        StoreState.read(path)

    @classmethod
    def create(cls, path: Path, catalog: Catalog) -> "CatalogStore":
        """A new store whose current version is `catalog`. `path` must not exist, or be empty, or left half-made."""
        files = StoreFiles(path)
        files.lay_out()
        with files.creating(catalog):
            if is_store(path):
                raise CatalogError(f"{path}: has become a store meanwhile; publish into it")
            version = catalog.version
            with files.new_log(StoreState(Line(version, 1), (), {}, last_log=0), version) as line:
                StoreState(line, (), {version: line.log}, line.log).write(path)
            flush_directory(path.parent)
        return cls(path)

    def head(self, version: str = "") -> Head:
        """What is live now, or would be with another version. Reads no array, and costs next to nothing.

        Bytes of a torn tail count here.
        """
        return self._reading(lambda state: self._head(state.line_of(version) if version else state.current))

    def previous(self) -> str | None:
        """The version that `rollback` would go to."""
        history = StoreState.read(self.path).history
        return history[-1].version if history else None

    def versions(self) -> list[StoredVersion]:
        """What is published, the oldest first, without those whose directory is damaged."""
        state = StoreState.read(self.path)
        found = []
        for version in state.logs:
            file = self._files.directory(version) / MANIFEST_FILE
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
        return self._reading(lambda state: self._load(state.line_of(version) if version else state.current, verify))

    def refresh(self, snapshot: Snapshot) -> Snapshot:
        """What is live now: by reading only what came since `snapshot`, if it leads there, or else by `load`.

        The same object when nothing changed.
        """
        head = self.head()
        if head == snapshot.head:
            return snapshot
        if head.line == snapshot.head.line:
            with suppress(CatalogError):  # the last batch it followed may have been taken back, and others written
                return self._caught_up(snapshot)
        return self.load()

    def publish(self, catalog: Catalog, activate: bool = True) -> None:
        """Write a version, and make it current if `activate`. What is current already, without updates, stays.

        Updates go on while it is written. When it cannot be, nothing of it is left. A version whose directory is
        damaged is written anew.
        """
        version = catalog.version
        with self._files.adding(catalog), self._files.changing() as state:
            stays = version in state.logs and not (activate and self._head(state.line_of(version)).log_bytes)
            with nullcontext(state.line_of(version)) if stays else self._files.new_log(state, version) as line:
                self._write(state, self._published(state, line, activate))

    def activate(self, version: str) -> None:
        """Make a published version current, with the updates to it, all verified. What is current already stays."""
        with self._verified(lambda state: state.line_of(version)) as (state, line):
            self._write(state, self._published(state, line, activate=True))

    def rollback(self, expected: str = "") -> str:
        """Make current what was before the current version, verified, and return it.

        Again goes one further back, not forth. expected: the only version that this may be; empty for any.
        """
        with self._verified(partial(self._last_of_history, expected)) as (state, line):
            self._write(state, replace(state.with_log(line), current=line, history=state.history[:-1]))
        return line.version

    def apply(
        self, updates: ItemUpdates, snapshot: Snapshot, check: Callable[[Snapshot], None] = lambda _: None
    ) -> tuple[Snapshot, Applied]:
        """Change what is live. On the disk when it returns, unless it changes nothing.

        snapshot: of the store; what others did since is done to it first.
        check: called with what results, and the head as it is without it; nothing is written if it raises.

        Raises CatalogError as apply_updates does; then, as on any error, the store is as it was.
        """
        with self._files.changing():
            snapshot = self.refresh(snapshot)
            catalog, head = snapshot.catalog, snapshot.head
            resolved = resolve(catalog, updates)
            payload = encode_updates(updates)  # too large a batch is refused before any work
            applied = apply_resolved(catalog, resolved)
            check(Snapshot(applied.catalog, head))
            if applied.catalog is catalog:
                return snapshot, applied
            end = append(self._files.log(head.line), head.end, payload, catalog.version, applied.catalog.version)
            return Snapshot(applied.catalog, replace(head, end=end)), applied

    def compact(self, snapshot: Snapshot) -> Snapshot:
        """Publish what is live as a version without updates, in the place of the current one: later loads are quick.

        Updates go on while it is written; what came meanwhile stays behind it as updates. The history stays as it is.
        Should another version go live meanwhile, that is returned, and nothing is left of this one.
        """
        snapshot = self.refresh(snapshot)
        catalog, head = snapshot.catalog, snapshot.head
        if not head.log_bytes:
            return snapshot
        with self._files.adding(catalog), self._files.changing() as state:
            if state.current == head.line:
                with self._files.new_log(state, catalog.version) as line:
                    end = LOG_START
                    for logged in read_log(self._files.log(head.line), head.end):
                        payload = encode_updates(logged.updates)
                        end = append(self._files.log(line), end, payload, logged.before, logged.after)
                    self._write(state, replace(state.with_log(line), current=line))
                snapshot = Snapshot(catalog, Head(line.version, line.log))
        return self.refresh(snapshot)

    def prune(self, keep: int) -> list[str]:
        """Remove versions, with the updates to them, but the current one and the last `keep` that were before it.

        Those that were published and never made current go too. Returns what was removed. Processes that have a removed
        version open keep it until they close it. Files that could not be removed go with the next call.
        """
        with self._files.publishing(), self._files.changing() as state:
            history = state.history[len(state.history) - keep :] if keep < len(state.history) else state.history
            kept = {state.current, *history}
            versions = {line.version for line in kept}
            logs = {version: log for version, log in state.logs.items() if version in versions}
            self._write(state, replace(state, history=history, logs=logs))
            return self._files.remove_others(versions, {*kept, *(Line(*entry) for entry in logs.items())})

    def _reading(self, read: Callable[[StoreState], _Read]) -> _Read:
        """What `read` makes of the store's state; anew when others change that, for they may prune what is read."""
        while True:
            state = StoreState.read(self.path)
            try:
                return read(state)
            except CatalogError:
                if StoreState.read(self.path) == state:
                    raise

    def _load(self, line: Line, verify: bool) -> Snapshot:
        directory = self._files.directory(line.version)
        catalog = open_catalog(directory, verify)
        if catalog.version != line.version:
            raise CatalogError(f"{directory}: holds version {catalog.version}; publish that one, and remove this")
        return self._caught_up(Snapshot(catalog, Head(line.version, line.log)))

    def _caught_up(self, snapshot: Snapshot) -> Snapshot:
        """With the updates that its log holds beyond it; the same object when there are none."""
        log = self._files.log(snapshot.head.line)
        version, end = snapshot.catalog.version, snapshot.head.end

        def batches() -> Iterator[ItemUpdates]:
            nonlocal version, end
            for logged in read_log(log, end):
                if logged.before != version:
                    raise CatalogError(
                        f"{log}: goes on from version {logged.before}, not from {version} where it is; restore it"
                    )
                version, end = logged.after, logged.end
                yield logged.updates

        updates = combined(batches(), snapshot.catalog.attributes)
        if end == snapshot.head.end:
            return snapshot
        try:
            catalog = apply_updates(snapshot.catalog, updates).catalog
        except CatalogError as error:
            raise CatalogError(f"{log}: does not fit its version ({error}); restore it") from error
        if catalog.version != version:
            raise CatalogError(f"{log}: leads to version {catalog.version}, not to {version} as it says; restore it")
        return Snapshot(catalog, replace(snapshot.head, end=end))

    def _head(self, line: Line) -> Head:
        log = self._files.log(line)
        try:
            return Head(line.version, line.log, log_end(log))
        except OSError as error:
            raise CatalogError(f"{log}: cannot be read: {error.strerror}; restore it") from error

    @contextmanager
    def _verified(self, choose: Callable[[StoreState], Line]) -> Iterator[tuple[StoreState, Line]]:
        """Be the only one who changes the state, and what `choose` takes of it: loaded whole, before others wait."""
        line = choose(StoreState.read(self.path))
        self._load(line, verify=True)
        with self._files.changing() as state:
            if choose(state) != line:
                raise CatalogError(f"{self.path}: has changed while {line.version} was verified; look, and try again")
            yield state, line

    def _last_of_history(self, expected: str, state: StoreState) -> Line:
        if not state.history:
            raise CatalogError(f"{self.path}: no version was current before {state.current.version}; activate one")
        line = state.history[-1]
        if expected and line.version != expected:
            raise CatalogError(
                f"{self.path}: before {state.current.version}, {line.version} was current and not {expected}: others "
                "have changed that meanwhile; roll back again, or activate a version by its name"
            )
        return line

    def _published(self, state: StoreState, line: Line, activate: bool) -> StoreState:
        state = state.with_log(line)
        return state.moved_to(line) if activate and line != state.current else state

    def _write(self, before: StoreState, after: StoreState) -> None:
        if after != before:
            after.write(self.path)
