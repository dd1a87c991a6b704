"""Reads request logs, one frame in memory at a time. Damage costs the frame it is in, and only when that is allowed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recall_service.errors import RequestLogError
from recall_service.request_log.files import log_files
from recall_service.request_log.frames import (
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    FORMAT_VERSION,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    Damaged,
    decode_block,
    format_version,
    frame_header,
)
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall

_SEARCH_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Something in a log that no writer left like this. offset: of the first byte of the frame or header, in bytes."""

    path: Path
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}, byte {self.offset:,}: {self.problem}"


class Frame(NamedTuple):
    """The records of one frame. file_bytes: what it takes in its file. raw_bytes: what its records take, serialised."""

    path: Path
    file_bytes: int
    raw_bytes: int
    records: Sequence[LoggedRecall]


def read_log(
    path: Path, *, skip_damaged: bool = False, on_damage: Callable[[LogDamage], None] | None = None
) -> Iterator[LoggedRecall]:
    """Every record of a file, or of the files of a directory, in the order they were written.

    skip_damaged: go on at the next sound frame, having told `on_damage`. Otherwise damage raises RequestLogError, as
    does, in either case, a path without a log, a file that is none, and a format of another version.
    """
    for frame in read_frames(find_files(path), skip_damaged=skip_damaged, on_damage=on_damage):
        for record in frame.records:
            # Parts of a message share its memory: whoever keeps a record would keep its frame.
            own = LoggedRecall()
            own.CopyFrom(record)
            yield own


def find_files(path: Path) -> list[Path]:
    """`path` itself, or the files of the log in it, oldest first. Raises RequestLogError when there are none."""
    try:
        files = log_files(path) if path.is_dir() else [path]
        if not all(file.is_file() for file in files):
            raise RequestLogError(f"{path}: no such file; give a request log, or the directory of one")
    except OSError as error:
        raise RequestLogError(f"{path}: cannot be read: {error.strerror}; give a readable directory") from None
    if not files:
        raise RequestLogError(f"{path}: holds no request log; give the directory that request_log_dir names")
    return files


def read_frames(
    files: Sequence[Path], *, skip_damaged: bool = False, on_damage: Callable[[LogDamage], None] | None = None
) -> Iterator[Frame]:
    """The same by frames, for those who report how far they are."""
    for path in files:
        try:
            with path.open("rb") as file:
                yield from _FileReader(path, file, skip_damaged, on_damage).frames()
        except FileNotFoundError:  # the server keeps so many files, and deletes the oldest meanwhile
            continue
        except OSError as error:
            raise RequestLogError(f"{path}: cannot be read: {error.strerror}; give a readable file") from None


class _FileReader:
    """Reads one file from its beginning to its end."""

    def __init__(
        self, path: Path, file: BinaryIO, skip_damaged: bool, on_damage: Callable[[LogDamage], None] | None
    ) -> None:
        self._path, self._file = path, file
        self._skips_damaged, self._on_damage = skip_damaged, on_damage

    def frames(self) -> Iterator[Frame]:
        offset: int | None = self._first_frame()
        while offset is not None:
            self._file.seek(offset)
            header = self._file.read(FRAME_HEADER_BYTES)
            if not header:
                return
            try:
                frame = frame_header(header)
                records = decode_block(frame, self._file.read(frame.block_len))
            except Damaged as damage:
                self._report(offset, str(damage))
                # Wherever the damage comes from, the next sound header is the next frame: lengths are not believed.
                offset = self._find_frame(offset + 1)
            else:
                file_bytes = FRAME_HEADER_BYTES + frame.block_len
                offset += file_bytes
                yield Frame(self._path, file_bytes, frame.raw_len, records)

    def _first_frame(self) -> int | None:
        header = self._file.read(FILE_HEADER_BYTES)
        try:
            version = format_version(header)
        except Damaged as damage:
            is_foreign = header[: len(FILE_MAGIC)] != FILE_MAGIC[: len(header)]
            if is_foreign and not (self._skips_damaged and self._find_frame(0) is not None):
                raise self._error(0, "is no request log", "give a file that the service wrote") from None
            self._report(0, str(damage))
            return self._find_frame(0)
        if version != FORMAT_VERSION:
            age, remedy = ("newer", "a newer") if version > FORMAT_VERSION else ("older", "an older")
            problem = f"format version {version} is {age} than {FORMAT_VERSION}, which this software reads"
            raise self._error(len(FILE_MAGIC), problem, f"read it with {remedy} version of recall-service")
        return FILE_HEADER_BYTES

    def _report(self, offset: int, problem: str) -> None:
        if not self._skips_damaged:
            remedy = "skip damaged frames to read the rest; the end of a file that is being written may be under way"
            raise self._error(offset, problem, remedy)
        if self._on_damage is not None:
            self._on_damage(LogDamage(self._path, offset, problem))

    def _error(self, offset: int, problem: str, remedy: str) -> RequestLogError:
        return RequestLogError(f"{LogDamage(self._path, offset, problem)}; {remedy}")

    def _find_frame(self, start: int) -> int | None:
        """Where, from `start` on, the next sound frame header begins; its magic alone may be anywhere by chance."""
        self._file.seek(start)
        window, window_start = b"", start
        while data := self._file.read(_SEARCH_BYTES):
            window += data
            position = window.find(FRAME_MAGIC)
            while 0 <= position <= len(window) - FRAME_HEADER_BYTES:
                if _is_frame_header(window[position : position + FRAME_HEADER_BYTES]):
                    return window_start + position
                position = window.find(FRAME_MAGIC, position + 1)
            seen = position if position >= 0 else max(0, len(window) - len(FRAME_MAGIC) + 1)
            window, window_start = window[seen:], window_start + seen
        return None


def _is_frame_header(header: bytes) -> bool:
    try:
        frame_header(header)
    except Damaged:
        return False
    return True
