"""The files of a log directory: their names and order, and the one that is written to. Knows no records."""

import os
import re
import time
from io import FileIO
from pathlib import Path

from recall_service.errors import SettingsError
from recall_service.request_log.frames import FILE_HEADER_BYTES, file_header

_NAME = re.compile(r"recalls-(\d{8,})\.rlog")
_MODE = 0o640  # they hold what users did


def log_files(directory: Path) -> list[Path]:
    """The files of a log in `directory`, oldest first; others are not looked at."""
    return sorted((path for path in directory.iterdir() if _number(path)), key=_number)


def open_directory(directory: Path) -> None:
    """Make `directory` where it is missing. Raises SettingsError unless files can be made in it."""
    probe = directory / ".can-be-written"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise SettingsError(
            f"request_log_dir: {directory} cannot be written to: {error.strerror}; give a directory that can"
        ) from None


class RotatingFiles:
    """Appends frames to the newest file of `directory`, which this process began; for one thread.

    A file is ended before it grows beyond `max_file_bytes` (unless a single frame does), and once it is
    `max_file_seconds` old. The newest `max_files` are kept. Files of an earlier process are never appended to.
    """

    def __init__(self, directory: Path, *, max_file_bytes: int, max_file_seconds: float, max_files: int) -> None:
        self._directory = directory
        self._max_file_bytes, self._max_file_seconds, self._max_files = max_file_bytes, max_file_seconds, max_files
        self._file: FileIO | None = None
        self._size = 0
        self._opened = 0.0

    def append(self, frame: bytes) -> None:
        """Hand a frame to the operating system. Raises OSError, and then nothing of the frame stays in a file."""
        if self._file is not None and self._is_over(self._file, len(frame)):
            self.close()
        file = self._file or self._open()
        try:
            _write_all(file, frame)
        except OSError:
            self._take_back(file)
            raise
        self._size += len(frame)

    def close(self) -> None:
        """End the file under way, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_over(self, file: FileIO, num_bytes: int) -> bool:
        is_full = self._size > FILE_HEADER_BYTES and self._size + num_bytes > self._max_file_bytes
        is_old = time.monotonic() - self._opened >= self._max_file_seconds
        return is_full or is_old or os.fstat(file.fileno()).st_nlink == 0  # someone has deleted it

    def _open(self) -> FileIO:
        path, file = self._next_file()
        try:
            _write_all(file, file_header())
        except OSError:
            file.close()
            path.unlink()
            raise
        self._file, self._size, self._opened = file, FILE_HEADER_BYTES, time.monotonic()
        for old in log_files(self._directory)[: -self._max_files]:
            old.unlink(missing_ok=True)
        return file

    def _next_file(self) -> tuple[Path, FileIO]:
        number = 1 + max(map(_number, log_files(self._directory)), default=0)
        path = self._directory / f"recalls-{number:08}.rlog"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, _MODE)
        return path, FileIO(descriptor, "w")

    def _take_back(self, file: FileIO) -> None:
        """Cut off what was written of a frame; where even that fails, the next frame goes to a new file."""
        try:
            file.truncate(self._size)
        except OSError:
            self.close()


def _number(path: Path) -> int:
    """Where a file stands among the files of its log, from 1; 0 for what is none of them."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else 0


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
