"""An append-only file of batches of updates, each on the disk before `append` returns.

One frame a batch: 4 bytes magic, the length of the payload (uint32, little-endian), the xxh3_128 of the payload, the
xxh3_64 of the header up to here, and the payload: JSON, with the version of the catalogue after the batch. Nothing is
allocated by a length that the header's checksum does not vouch for, and nothing pickled is ever read.

A process that dies while it appends leaves a frame without its end, and nothing behind it: the torn tail. It was never
acknowledged; readers stop before it, and the next writer cuts it off. Whatever else is not a frame is damage, and an
error: what was acknowledged is never dropped in silence. This module knows no catalogue.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import xxhash

from item_catalog.errors import CatalogError
from item_catalog.updates import ItemUpdates, ItemUpsert

MAX_PAYLOAD_BYTES = 64 * 2**20

_MAGIC = b"IUL1"
_LENGTH_END = len(_MAGIC) + 4
_CHECKSUM_END = _LENGTH_END + 16
HEADER_BYTES = _CHECKSUM_END + 8


class LoggedUpdates(NamedTuple):
    """One batch of a log. version: of the catalogue after it; end: the offset in the file behind it."""

    updates: ItemUpdates
    version: str
    end: int


def read_log(path: Path, start: int = 0) -> Iterator[LoggedUpdates]:
    """The batches from offset `start`, which is 0 or the end of another batch.

    Raises CatalogError naming the file when it cannot be read, and the offset at the first damage.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            while (frame := _read_frame(file, path)) is not None:
                yield frame
    except OSError as error:
        raise CatalogError(
            f"{path}: cannot be read: {error.strerror}; restore it, or activate another version"
        ) from error


def append(path: Path, end: int, updates: ItemUpdates, version: str) -> int:
    """Write a batch at offset `end`, the end of the last one, and return the end of this one, once it is on the disk.

    Whatever stands at `end` and behind it is a torn tail to the caller, and is cut off. Raises CatalogError when the
    batch is too large or cannot be written; the file then ends where it did. One writer at a time.
    """
    payload = _encode(updates, version)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise CatalogError(
            f"updates: {len(payload):,} bytes in one batch; give at most {MAX_PAYLOAD_BYTES:,}, in several batches"
        )
    try:
        with path.open("r+b", buffering=0) as file:
            file.truncate(end)
            try:
                _write_all(file, end, _header(payload) + payload)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise CatalogError(f"{path}: cannot be written: {error.strerror}; free space or check the disk") from error
    return end + HEADER_BYTES + len(payload)


def _write_all(file: IO[bytes], start: int, content: bytes) -> None:
    file.seek(start)
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _header(payload: bytes) -> bytes:
    header = _MAGIC + len(payload).to_bytes(4, "little") + xxhash.xxh3_128_digest(payload)
    return header + xxhash.xxh3_64_digest(header)


def _read_frame(file: IO[bytes], path: Path) -> LoggedUpdates | None:
    """The frame at the file's position; None at the end and before a torn tail."""
    start = file.tell()
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        if not _MAGIC.startswith(header[: len(_MAGIC)]):
            raise _damage(path, start, "no frame begins there")
        return None
    if header[: len(_MAGIC)] != _MAGIC or header[_CHECKSUM_END:] != xxhash.xxh3_64_digest(header[:_CHECKSUM_END]):
        raise _damage(path, start, "no frame begins there")
    length = int.from_bytes(header[len(_MAGIC) : _LENGTH_END], "little")
    if length > MAX_PAYLOAD_BYTES:
        raise _damage(path, start, f"a frame of {length:,} bytes")
    payload = file.read(length)
    if len(payload) < length:
        return None
    if xxhash.xxh3_128_digest(payload) != header[_LENGTH_END:_CHECKSUM_END]:
        raise _damage(path, start, "the checksum of its batch is wrong")
    try:
        updates, version = _decode(payload)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damage(path, start, f"no batch of updates ({error})") from error
    return LoggedUpdates(updates, version, start + HEADER_BYTES + length)


def _damage(path: Path, offset: int, problem: str) -> CatalogError:
    return CatalogError(f"{path}: damaged at byte {offset}: {problem}; restore the file, or activate another version")


def _encode(updates: ItemUpdates, version: str) -> bytes:
    document = {
        "version": version,
        "upserts": [[upsert.item_id, upsert.sid, dict(upsert.attributes)] for upsert in updates.upserts],
        "removals": updates.removals,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _decode(payload: bytes) -> tuple[ItemUpdates, str]:
    document: dict[str, Any] = json.loads(payload)
    upserts = tuple(
        ItemUpsert(item_id, None if sid is None else tuple(sid), attributes)
        for item_id, sid, attributes in document["upserts"]
    )
    return ItemUpdates(upserts, tuple(document["removals"])), document["version"]
