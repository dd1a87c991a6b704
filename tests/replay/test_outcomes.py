"""Outcomes, their lines of JSON, and the file they are written to."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.errors import ReplayError
from recall_service.replay import outcome_file
from recall_service.replay.asked import Answered
from recall_service.replay.outcome import Outcome
from recall_service.replay.outcome_file import OutcomeWriter
from tests.replay.questions import ANSWER

SECONDS = st.floats(0, 1e9)
TEXT = st.text(max_size=8)
ANSWERS = st.builds(
    Answered,
    item_ids=st.lists(TEXT, max_size=3).map(tuple),
    scores=st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    proven_count=st.integers(0, 1_000),
    short_reason=TEXT,
    served_from=TEXT,
    bundle_version=TEXT,
    catalog_version=TEXT,
)
OUTCOMES = st.builds(
    Outcome,
    index=st.integers(0, 2**60),
    scene=TEXT,
    intended_seconds=SECONDS,
    sent_seconds=SECONDS,
    done_seconds=SECONDS,
    code=TEXT,
    error_reason=TEXT,
    was_cancelled=st.booleans(),
    is_warm_up=st.booleans(),
    answer=st.none() | ANSWERS,
)


def make_outcome(index: int = 0) -> Outcome:
    return Outcome(
        index=index, scene="feed", intended_seconds=1.0, sent_seconds=1.25, done_seconds=3.5, code="OK", answer=ANSWER
    )


@given(OUTCOMES)
def test_a_line_gives_back_the_outcome_to_the_last_bit(outcome: Outcome) -> None:
    line = outcome.to_json()
    assert "\n" not in line
    assert Outcome.from_json(line) == outcome
    assert Outcome.from_json(line.encode()) == outcome


def test_latency_counts_from_the_intended_time() -> None:
    outcome = make_outcome()
    assert (outcome.latency_seconds, outcome.service_seconds, outcome.lag_seconds) == (2.5, 2.25, 0.25)


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "7", "{}", '{"index": 1}', make_outcome().to_json().replace('"scores"', '"score"')],
    ids=["empty", "cut off", "list", "number", "no fields", "few fields", "other answer"],
)
def test_what_is_no_outcome(line: str) -> None:
    with pytest.raises(ValueError, match=r"not an outcome of a replay|Expecting"):
        Outcome.from_json(line)


def test_every_outcome_is_on_disk_once_the_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    outcomes = [make_outcome(index) for index in range(2_000)]
    with OutcomeWriter(path) as writer:
        for outcome in outcomes:
            writer.write(outcome)
    assert [Outcome.from_json(line) for line in path.read_bytes().splitlines()] == outcomes
    with pytest.raises(ReplayError, match=f"{path}: exists already"):
        OutcomeWriter(path)


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReplayError, match=f"{tmp_path / 'file'}: exists already; give another directory"):
        OutcomeWriter(tmp_path / "file" / "outcomes.jsonl")
    with pytest.raises(ReplayError, match="cannot be written: Not a directory; give a directory that can"):
        OutcomeWriter(tmp_path / "file" / "out" / "outcomes.jsonl")


@pytest.mark.parametrize("chunk", [1, 64 * 1024], ids=["told while writing", "told when closing"])
def test_a_full_disk_is_told_and_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(outcome_file, "_CHUNK_CHARACTERS", chunk)
    path = tmp_path / "outcomes.jsonl"
    writer = OutcomeWriter(path)
    fill_up(writer, room=1_000)
    with pytest.raises(ReplayError, match=f"{path}: cannot be written: No space left on device"):
        write_all(writer, 100_000 if chunk == 1 else 3)
    if chunk == 1:
        with pytest.raises(ReplayError, match="No space left"):
            writer.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2  # of 347 bytes each
    assert [json.loads(line)["index"] for line in lines] == list(range(len(lines)))
    assert all(line.endswith(b"\n") for line in lines)


def write_all(writer: OutcomeWriter, number: int) -> None:
    for index in range(number):
        writer.write(make_outcome(index))
    writer.close()


def fill_up(writer: OutcomeWriter, room: int) -> None:
    """Let the disk take `room` bytes; of the write that goes beyond, it takes what fits."""

    class FullDisk:
        def __init__(self, file: Any) -> None:
            self._file, self._left = file, room

        def write(self, data: memoryview) -> int:
            if not self._left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written: int = self._file.write(data[: self._left])
            self._left -= written
            return written

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

    writer._file = FullDisk(writer._file)  # type: ignore[assignment]
