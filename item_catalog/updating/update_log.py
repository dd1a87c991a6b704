"""An append-only file of batches of updates, each on the disk before `append` returns.

One frame a batch: a header of 4 bytes magic, the length of the payload (uint32, little-endian), the versions of the
catalogue before and after the batch (16 bytes each) and the xxh3_64 of the header up to here; the payload, JSON; and
the xxh3_128 of header and payload. Nothing is allocated by a length that the header's checksum does not vouch for, and
nothing pickled is ever read.

A process that dies while it appends leaves a frame without its end, and nothing behind it; a power cut may leave zeros
in its place. Such a torn tail was never acknowledged; readers stop before it, and the next writer cuts it off. Whatever
else is not a frame is damage, and an error: what was acknowledged is never dropped in silence.

A reader may have followed a batch that its writer could not get onto the disk, and took back. So a place in a log is
not its offset alone, but also the checksum of the batch that ends there. This module knows no catalogue.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import xxhash

from item_catalog.errors import CatalogError
from item_catalog.updating.updates import ItemUpdates, ItemUpsert

MAX_PAYLOAD_BYTES = 64 * 2**20
CHECKSUM_BYTES = 16

_MAGIC = b"IUL1"
_LENGTH_END = len(_MAGIC) + 4
_VERSION_BYTES = 16
_VERSIONS_END = _LENGTH_END + 2 * _VERSION_BYTES
HEADER_BYTES = _VERSIONS_END + 8
_CHUNK_BYTES = 2**20


class LogEnd(NamedTuple):
    """Behind a batch, or at the beginning: the offset, and the checksum that ends the batch."""

    offset: int
    checksum: bytes


LOG_START = LogEnd(0, b"")


class LoggedUpdates(NamedTuple):
    """One batch of a log. before, after: versions of the catalogue; end: behind the batch."""

    updates: ItemUpdates
    before: str
    after: str
    end: LogEnd


def log_end(path: Path) -> LogEnd:
    """Where the file ends; with a torn tail that is the end of no batch. Raises OSError."""
    with path.open("rb") as file:
        offset = file.seek(0, os.SEEK_END)
        file.seek(max(offset - CHECKSUM_BYTES, 0))
        return LogEnd(offset, file.read(CHECKSUM_BYTES))


def read_log(path: Path, start: LogEnd = LOG_START) -> Iterator[LoggedUpdates]:
    """The batches behind `start`.

    Raises CatalogError naming the file when it cannot be read or `start` is not in it, and the offset at the first
    damage.
    """
    try:
        with path.open("rb") as file:
            _seek(file, path, start)
            while (frame := _read_frame(file, path)) is not None:
                yield frame
    except OSError as error:
        raise CatalogError(
            f"{path}: cannot be read: {error.strerror}; restore it, or activate another version"
        ) from error


def encode_updates(updates: ItemUpdates) -> bytes:
    """The payload of a valid batch. Raises CatalogError when it is too large for one."""
    document = {
        "upserts": [[upsert.item_id, upsert.sid, dict(upsert.attributes)] for upsert in updates.upserts],
        "removals": updates.removals,
    }
    payload = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise CatalogError(
            f"updates: {len(payload):,} bytes in one batch; give at most {MAX_PAYLOAD_BYTES:,}, in several batches"
        )
    return payload


def append(path: Path, end: LogEnd, payload: bytes, before: str, after: str) -> LogEnd:
    """Write a batch behind the last one, and return the end of this one, once it is on the disk.

    Whatever stands behind `end` is a torn tail to the caller, and is cut off. Raises CatalogError when no batch ends
    there, or this one cannot be written; the file then ends where it did. One writer at a time.
    """
    header = _header(len(payload), before, after)
    checksum = xxhash.xxh3_128_digest(header + payload)
    try:
        with path.open("r+b", buffering=0) as file:
            _seek(file, path, end)
            file.truncate(end.offset)
            try:
                _write_all(file, header + payload + checksum)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(end.offset)
                raise
    except OSError as error:
        raise CatalogError(f"{path}: cannot be written: {error.strerror}; free space or check the disk") from error
    return LogEnd(end.offset + HEADER_BYTES + len(payload) + CHECKSUM_BYTES, checksum)


def _seek(file: IO[bytes], path: Path, end: LogEnd) -> None:
    """Raises CatalogError unless the batch of `end` ends there."""
    file.seek(end.offset - len(end.checksum))
    if file.read(len(end.checksum)) != end.checksum:
        raise CatalogError(f"{path}: not the batch that did ends at byte {end.offset}; load the store again")


def _write_all(file: IO[bytes], content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


def _header(payload_bytes: int, before: str, after: str) -> bytes:
    header = _MAGIC + payload_bytes.to_bytes(4, "little") + bytes.fromhex(before) + bytes.fromhex(after)
    return header + xxhash.xxh3_64_digest(header)


def _read_frame(file: IO[bytes], path: Path) -> LoggedUpdates | None:
    """The frame at the file's position; None at the end and before a torn tail."""
    start = file.tell()
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES and _MAGIC.startswith(header[: len(_MAGIC)]):
        return None
    if header[: len(_MAGIC)] != _MAGIC or header[_VERSIONS_END:] != xxhash.xxh3_64_digest(header[:_VERSIONS_END]):
        if _is_blank(header) and _is_blank_until_its_end(file):
            return None
        raise _damage(path, start, "no frame begins there")
    length = int.from_bytes(header[len(_MAGIC) : _LENGTH_END], "little")
    if length > MAX_PAYLOAD_BYTES:
        raise _damage(path, start, f"a frame of {length:,} bytes")
    payload, checksum = file.read(length), file.read(CHECKSUM_BYTES)
    if len(payload) + len(checksum) < length + CHECKSUM_BYTES:
        return None
    if checksum != xxhash.xxh3_128_digest(header + payload):
        raise _damage(path, start, "the checksum of its batch is wrong")
    try:
        updates = _decode(payload)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damage(path, start, f"no batch of updates ({error})") from error
    after_start = _LENGTH_END + _VERSION_BYTES
    return LoggedUpdates(
        updates=updates,
        before=header[_LENGTH_END:after_start].hex(),
        after=header[after_start:_VERSIONS_END].hex(),
        end=LogEnd(start + HEADER_BYTES + length + CHECKSUM_BYTES, checksum),
    )


def _is_blank(content: bytes) -> bool:
    return not content.strip(b"\0")


def _is_blank_until_its_end(file: IO[bytes]) -> bool:
    return all(_is_blank(chunk) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))


def _damage(path: Path, offset: int, problem: str) -> CatalogError:
    return CatalogError(f"{path}: damaged at byte {offset}: {problem}; restore the file, or activate another version")


def _decode(payload: bytes) -> ItemUpdates:
    document: dict[str, Any] = json.loads(payload)
    upserts = tuple(
        ItemUpsert(item_id, None if sid is None else tuple(sid), attributes)
        for item_id, sid, attributes in document["upserts"]
    )
    return ItemUpdates(upserts, tuple(document["removals"]))
