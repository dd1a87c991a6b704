"""Outcomes as JSON lines on disk, written while a run goes on.

A thread of its own waits for the disk, so that the run does not. Whatever was written when the disk filled up can be
read: the file then ends with a whole line.
"""

import os
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from types import TracebackType
from typing import Self

from recall_service.errors import ReplayError
from recall_service.replay.outcome import Outcome

_CHUNK_CHARACTERS = 64 * 1024
_MAX_CHUNKS_WAITING = 64  # a disk that falls behind by more holds the run up: its lag then shows


class OutcomeWriter:
    """A new file of outcomes, its directory made where it is missing.

    Owns the file and the thread; close it, or use it in a `with` statement.
    Raises ReplayError when the file exists or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("xb", buffering=0)
        except FileExistsError as error:
            raise ReplayError(f"{error.filename}: exists already; give another directory, or move it away") from None
        except OSError as error:
            raise ReplayError(f"{path}: cannot be written: {error.strerror}; give a directory that can") from None
        self._path = path
        self._lines: list[str] = []
        self._characters = 0
        self._chunks: Queue[bytes | None] = Queue(_MAX_CHUNKS_WAITING)
        self._failure: OSError | None = None
        self._thread = Thread(target=self._write_chunks, name="replay-outcomes")
        self._thread.start()

    def write(self, outcome: Outcome) -> None:
        """Hand one outcome over. Raises ReplayError once the disk has refused an earlier one."""
        self.write_line(outcome.to_json())

    def write_line(self, line: str) -> None:
        """The same with an outcome that is JSON already, without its line feed."""
        self._lines.append(line)
        self._characters += len(line)
        if self._characters >= _CHUNK_CHARACTERS:
            self._hand_over()
            self._raise_failure()

    def close(self) -> None:
        """Wait until everything is on disk. Raises ReplayError when something could not be written."""
        self._hand_over()
        self._chunks.put(None)
        self._thread.join()
        self._file.close()
        self._raise_failure()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with suppress(ReplayError):  # the first failure is the one to tell
            self.close()

    def _hand_over(self) -> None:
        if self._lines:
            self._chunks.put("".join(f"{line}\n" for line in self._lines).encode())
            self._lines.clear()
            self._characters = 0

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ReplayError(
                f"{self._path}: cannot be written: {self._failure.strerror}; what was written before is kept; make room"
            )

    def _write_chunks(self) -> None:
        written = 0
        while (chunk := self._chunks.get()) is not None:
            if self._failure is not None:
                continue  # goes on taking chunks, for whoever hands them over may be waiting for room
            left = memoryview(chunk)
            try:
                while left:
                    left = left[self._file.write(left) :]
                written += len(chunk)
            except OSError as error:
                self._failure = error
                whole_lines = chunk.rfind(b"\n", 0, len(chunk) - len(left)) + 1
                with suppress(OSError):
                    os.ftruncate(self._file.fileno(), written + whole_lines)
