"""CURRENT.json of a store: which version is current, which ones were before it, and where each one's updates are.

    format_version   of this file
    current          version, log: the number of the file its updates are in
    history          the like, of what was current before, the latest last
    logs             of every published version: the number of the file its updates go to when it is current
    last_log         the highest number that a file of updates has had: none is ever used again

It is replaced as a whole, so whoever reads it sees one state of the store or the next. This module opens no catalogue.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from item_catalog.errors import CatalogError
from item_catalog.storage.durable_files import replace_text

STATE_FILE = "CURRENT.json"
MAX_HISTORY = 100

_FORMAT_VERSION = 1
_VERSION = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Line:
    """A published version, and the number of the file that holds its updates: together, what can be current."""

    version: str
    log: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """What the store is. A change is another state; nothing of it is written until `write`."""

    current: Line
    history: tuple[Line, ...]
    logs: Mapping[str, int]
    last_log: int

    @classmethod
    def read(cls, store: Path) -> "StoreState":
        """Raises CatalogError naming the file, the field and the remedy."""
        file = store / STATE_FILE
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise CatalogError(f"{file}: {error.strerror}; give the directory of a store") from error
        except (ValueError, RecursionError) as error:
            raise CatalogError(f"{file}: not JSON: {error}; restore it") from error
        try:
            return _parse(document)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CatalogError(f"{file}: no state of a store ({error}); restore it") from error

    def write(self, store: Path) -> None:
        """Make it the store's state, on the disk. Raises CatalogError; the store's state is then what it was."""
        document = {"format_version": _FORMAT_VERSION, **asdict(self)}
        try:
            replace_text(store / STATE_FILE, json.dumps(document, indent=2) + "\n")
        except OSError as error:
            raise CatalogError(f"{store / STATE_FILE}: cannot be written: {error.strerror}; free space") from error

    def line_of(self, version: str) -> Line:
        """Raises CatalogError unless `version` is a published one."""
        if not is_version(version):
            raise CatalogError(f"version: {version!r}; give the 32 hexadecimal digits of one")
        if version not in self.logs:
            known = ", ".join(sorted(self.logs))
            raise CatalogError(f"version: {version} is not in the store; publish it, or give one of {known}")
        return Line(version, self.logs[version])

    def with_log(self, line: Line) -> "StoreState":
        """The version's updates go to another file from now on."""
        logs = {**self.logs, line.version: line.log}
        return replace(self, logs=logs, last_log=max(self.last_log, line.log))

    def moved_to(self, line: Line) -> "StoreState":
        """`line` is current, and what was is the latest of the history."""
        return replace(self, current=line, history=(*self.history, self.current)[-MAX_HISTORY:])


def is_version(text: str) -> bool:
    """Whether `text` may be a version: nothing else ever becomes a part of a path."""
    return _VERSION.fullmatch(text) is not None


def _parse(document: Any) -> StoreState:
    if document["format_version"] != _FORMAT_VERSION:
        raise ValueError(f"format_version: {document['format_version']!r}; this release reads {_FORMAT_VERSION}")
    logs = {_version(version): _number(log) for version, log in document["logs"].items()}
    history = tuple(_line(line) for line in document["history"])
    return StoreState(_line(document["current"]), history, logs, _number(document["last_log"]))


def _line(document: Any) -> Line:
    return Line(_version(document["version"]), _number(document["log"]))


def _version(value: Any) -> str:
    if not isinstance(value, str) or not is_version(value):
        raise ValueError(f"{value!r} is no version")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{value!r} is no number of a log")
    return value
