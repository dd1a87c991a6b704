"""The files of a store: where they are, who may write them, and how they come and go. Knows nothing of what they mean.

    CURRENT.json                      which version is current; see store_state
    versions/<version>/               a catalogue as save_catalog writes it, never changed
    updates/<version>.<number>.log    batches of updates to it; see update_log
    LOCK, PUBLISH.LOCK                held by who changes CURRENT.json or a log; by who adds or removes versions

Names that a store does not give are left alone.
"""

import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from uuid import uuid4

from item_catalog.catalog import Catalog
from item_catalog.errors import CatalogError
from item_catalog.storage.directory import save_catalog
from item_catalog.storage.durable_files import create_empty, disk_errors, exclusive, staging_name
from item_catalog.updating.store_state import STATE_FILE, Line, StoreState, is_version

_VERSIONS, _UPDATES, _LOCK, _PUBLISH_LOCK = "versions", "updates", "LOCK", "PUBLISH.LOCK"
_PARTS = {_VERSIONS, _UPDATES, _LOCK, _PUBLISH_LOCK, staging_name(STATE_FILE)}
_LOG_NAME = re.compile(r"[0-9a-f]{32}\.[0-9]+\.log")


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Of the store in the directory `path`."""

    path: Path

    def lay_out(self) -> None:
        """The empty directories of a new store. Raises CatalogError where something else is, or updates of a store."""
        try:
            strangers = {file.name for file in self.path.iterdir()} - _PARTS if self.path.exists() else set()
            if strangers:
                raise CatalogError(f"{self.path}: holds {min(strangers)}; give a new or empty directory")
            (self.path / _VERSIONS).mkdir(parents=True, exist_ok=True)
            (self.path / _UPDATES).mkdir(exist_ok=True)
            updates = [log.name for log in self._logs() if log.stat().st_size]
        except OSError as error:
            raise CatalogError(f"{self.path}: cannot be made a store: {error.strerror}; give another place") from error
        if updates:
            raise CatalogError(
                f"{self.path}: holds updates of a store, {min(updates)}, and no {STATE_FILE}; restore that, or give "
                "another place"
            )

    def directory(self, version: str) -> Path:
        """Of a version's catalogue."""
        return self.path / _VERSIONS / version

    def log(self, line: Line) -> Path:
        """The file of its updates."""
        return self.path / _UPDATES / f"{line.version}.{line.log}.log"

    @contextmanager
    def changing(self) -> Iterator[StoreState]:
        """Be the only one who changes what is current and what is in its log."""
        with self._changes_alone():
            yield StoreState.read(self.path)

    @contextmanager
    def creating(self, catalog: Catalog) -> Iterator[None]:
        """Be the only one who makes a store of it, with the catalogue written."""
        with self.adding(catalog), self._changes_alone():
            yield

    @contextmanager
    def adding(self, catalog: Catalog) -> Iterator[None]:
        """Be the only one who adds or removes versions, with this one written.

        Unless the store has it by the end, it goes again.
        """
        version = catalog.version
        with self.publishing():
            self._save(catalog)
            try:
                yield
            finally:
                with suppress(CatalogError):  # of a store whose state cannot be read, nothing is removed
                    if version not in StoreState.read(self.path).logs:
                        _remove(self._set_aside(version))

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Be the only one who adds or removes versions. What others left half-written when they died goes first."""
        with exclusive(self.path / _PUBLISH_LOCK), disk_errors(self.path):
            for leftover in (self.path / _VERSIONS).glob(".*"):
                _remove(leftover)
            yield

    @contextmanager
    def new_log(self, state: StoreState, version: str) -> Iterator[Line]:
        """An empty log for the version, of a number that none has had. It goes again when the block fails."""
        lines = (Line(version, number) for number in count(state.last_log + 1))
        line = next(line for line in lines if not self.log(line).exists())  # one may be left by a process that died
        log = self.log(line)
        try:
            create_empty(log)
        except OSError as error:
            log.unlink(missing_ok=True)
            raise CatalogError(f"{log}: cannot be written: {error.strerror}; free space") from error
        try:
            yield line
        except BaseException:
            log.unlink(missing_ok=True)
            raise

    def remove_others(self, versions: Collection[str], lines: Collection[Line]) -> list[str]:
        """Remove every version and every log but these, and return which versions."""
        named = {self.log(line) for line in lines}
        for log in self._logs():
            if log not in named:
                log.unlink()
        found = {file.name for file in (self.path / _VERSIONS).iterdir() if is_version(file.name)}
        removed = sorted(found - set(versions))
        for version in removed:
            _remove(self._set_aside(version))
        return removed

    @contextmanager
    def _changes_alone(self) -> Iterator[None]:
        with exclusive(self.path / _LOCK), disk_errors(self.path):
            yield

    def _logs(self) -> list[Path]:
        return [file for file in (self.path / _UPDATES).iterdir() if _LOG_NAME.fullmatch(file.name) and file.is_file()]

    def _save(self, catalog: Catalog) -> None:
        """In the place of what is damaged there, if that is so."""
        directory = self.directory(catalog.version)
        try:
            save_catalog(catalog, directory)
            return
        except CatalogError:
            if not directory.exists():
                raise
        damaged = self._set_aside(catalog.version)
        try:
            save_catalog(catalog, directory)
        except CatalogError:
            damaged.rename(directory)
            raise
        _remove(damaged)

    def _set_aside(self, version: str) -> Path:
        """Under a name that readers do not see, and whoever publishes next removes."""
        aside = self.path / _VERSIONS / f".{version}.{uuid4().hex}"
        return self.directory(version).rename(aside)


def _remove(path: Path) -> None:
    """A file or a directory with all that is in it, as far as it can be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
