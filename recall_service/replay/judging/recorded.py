"""Reads files of outcomes back: from the first line to the last, or by the index of the question."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from recall_service.errors import ReplayError
from recall_service.replay.outcome import Outcome

_REMEDY = "give a file that a replay wrote"


def read_outcomes(path: Path) -> Iterator[Outcome]:
    """The outcomes of a file, one at a time, in the order they were done. Raises ReplayError naming file and line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                yield _parse(line, f"{path}, line {number}")
    except OSError as error:
        raise ReplayError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from None


class RecordedOutcomes:
    """A file of outcomes by the index of the question: 16 bytes of memory an outcome, the rest stays on disk.

    Owns the open file; close it, or use it in a `with` statement.
    Raises ReplayError naming file and line when the file cannot be read, a line is no outcome, or an index comes twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        indices, offsets = array("q"), array("q")
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ReplayError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from None
        try:
            offset = 0
            for number, line in enumerate(self._file, start=1):
                indices.append(_parse(line, f"{path}, line {number}").index)
                offsets.append(offset)
                offset += len(line)
            in_order = np.argsort(np.array(indices, np.int64), kind="stable")
            self._indices = np.array(indices, np.int64)[in_order]
            self._offsets = np.array(offsets, np.int64)[in_order]
            self._check_unique()
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self._indices)

    def get(self, index: int) -> Outcome | None:
        """What came of the question with this index; None when it was not asked."""
        place = int(np.searchsorted(self._indices, index))
        if place == len(self._indices) or self._indices[place] != index:
            return None
        self._file.seek(int(self._offsets[place]))
        return _parse(self._file.readline(), f"{self._path}, byte {self._offsets[place]}")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_unique(self) -> None:
        twice = np.flatnonzero(np.diff(self._indices) == 0)
        if len(twice):
            index = self._indices[twice[0]]
            raise ReplayError(f"{self._path}: has two outcomes of request {index}; give the file of one run alone")


def _parse(line: bytes, where: str) -> Outcome:
    try:
        outcome = Outcome.from_json(line)
        if not 0 <= outcome.intended_seconds <= outcome.sent_seconds <= outcome.done_seconds < float("inf"):
            raise ValueError("intended, sent and done are not moments of a run in this order")
        if outcome.answer is not None and len(outcome.answer.item_ids) != len(outcome.answer.scores):
            raise ValueError(f"{len(outcome.answer.item_ids)} items but {len(outcome.answer.scores)} scores")
        if (outcome.code == "OK") != (outcome.answer is not None):
            raise ValueError(f"code is {outcome.code} with{'out' if outcome.answer is None else ''} an answer")
    except (ValueError, TypeError) as error:
        raise ReplayError(f"{where}: {error}; {_REMEDY}") from None
    return outcome
