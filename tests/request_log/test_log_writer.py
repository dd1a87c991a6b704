"""From recalls that ended to files: nothing waits, nothing raises, and what is lost is counted."""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from recall_service.errors import SettingsError
from recall_service.request_log import files as files_module
from recall_service.request_log import writer as writer_module
from recall_service.request_log.files import RotatingFiles, log_files, open_directory
from recall_service.request_log.frames import MAX_RECORD_BYTES
from recall_service.request_log.log import RequestLog
from recall_service.request_log.reader import read_frames, read_log
from recall_service.stubs.recall.v1 import recall_pb2
from tests.request_log.recalls import (
    Counts,
    make_files,
    make_frame,
    make_log,
    make_record,
    make_records,
    make_request,
    tell,
)
from tests.unpaused_clock import unpaused_clock


@pytest.fixture
def counts() -> Counts:
    return Counts()


def until(condition: Callable[[], bool], seconds: float = 5.0) -> float:
    """How long it took until `condition` held."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        time.sleep(0.005)
    return time.monotonic() - started


def test_what_the_log_is_told_is_what_it_keeps(tmp_path: Path, counts: Counts) -> None:
    told = [make_record(3), make_record(4, code=8, reason="OVERLOADED")]
    log = make_log(make_files(tmp_path), counts)
    for record in told:
        tell(log, record)
    log.close()
    assert list(read_log(tmp_path)) == told
    assert counts.written == 2


def test_no_file_is_made_before_there_is_a_record(tmp_path: Path, counts: Counts) -> None:
    make_log(make_files(tmp_path), counts).close()
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_on_disk_within_a_second(tmp_path: Path, counts: Counts) -> None:
    log = make_log(make_files(tmp_path), counts)
    tell(log, make_record())
    seconds = until(lambda: counts.written == 1)
    assert [record.request.request_id for record in read_log(tmp_path)] == ["r-0"]
    log.close()
    assert seconds < 1


def test_a_frame_holds_so_much_and_no_more(tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "BLOCK_BYTES", 1_000)
    log = make_log(make_files(tmp_path), counts)
    for number in range(100):
        tell(log, make_record(number))
    log.close()
    sizes = [frame.raw_bytes for frame in read_frames(log_files(tmp_path))]
    assert len(sizes) > 10
    assert max(sizes) < 1_400


def test_ten_thousand_records_in_their_order(tmp_path: Path, counts: Counts) -> None:
    log = make_log(make_files(tmp_path, max_file_bytes=20_000), counts)
    for number in range(10_000):
        tell(log, make_record(number))
    log.close()
    assert [record.request.request_id for record in read_log(tmp_path)] == [f"r-{n}" for n in range(10_000)]
    assert (counts.written, counts.dropped) == (10_000, 0)
    assert len(log_files(tmp_path)) > 1


class StuckFiles(RotatingFiles):
    """A disk that hangs until `released`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, max_file_bytes=1 << 30, max_file_seconds=3_600, max_files=10)
        self.released = Event()
        self.is_stuck = Event()

    def append(self, frame: bytes) -> None:
        self.is_stuck.set()
        self.released.wait(10)
        super().append(frame)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[StuckFiles]:
    files = StuckFiles(tmp_path)
    yield files
    files.released.set()


def stuck_log(stuck: StuckFiles, counts: Counts, max_queued_bytes: int) -> RequestLog:
    """A log whose writer is busy with a first record and takes no more."""
    log = make_log(stuck, counts, max_queued_bytes=max_queued_bytes)
    tell(log, make_record())
    assert stuck.is_stuck.wait(5)
    return log


def test_a_record_that_no_reader_would_take_is_dropped(tmp_path: Path, counts: Counts) -> None:
    log = make_log(make_files(tmp_path), counts)
    largest, larger = (make_request(scene="x" * length) for length in (MAX_RECORD_BYTES - 1_000, MAX_RECORD_BYTES))
    for request in (largest, larger):
        tell(log, make_record(request=request))
    log.close()
    assert (counts.written, counts.dropped) == (1, 1)
    assert [record.request for record in read_log(tmp_path)] == [largest]


def test_a_full_queue_drops_and_nobody_waits(tmp_path: Path, counts: Counts, stuck: StuckFiles) -> None:
    log = stuck_log(stuck, counts, max_queued_bytes=20_000)
    slowest = 0.0
    with unpaused_clock() as clock:
        for number in range(1, 1_001):
            started = clock()
            tell(log, make_record(number))
            slowest = max(slowest, clock() - started)
    assert slowest < 0.1
    assert counts.written == 0
    assert 850 < counts.dropped < 950  # a record has some 200 bytes
    stuck.released.set()
    log.close()
    assert counts.written + counts.dropped == 1_001
    found = [record.request.request_id for record in read_log(tmp_path)]
    assert found == [f"r-{number}" for number in range(counts.written)]


def test_at_most_one_record_is_queued_beyond_the_limit(counts: Counts, stuck: StuckFiles) -> None:
    log = stuck_log(stuck, counts, max_queued_bytes=1_000_000)
    for number in range(10):
        tell(log, make_record(number, make_request(user_id="x" * 300_000)))
    assert counts.dropped == 6
    stuck.released.set()
    log.close()
    assert counts.written == 5


def test_a_disk_that_hangs_holds_up_no_exit(
    counts: Counts, stuck: StuckFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recall_service.request_log.log.CLOSE_SECONDS", 0.05)
    log = stuck_log(stuck, counts, max_queued_bytes=1_000)
    log.close()
    assert "did not end within 0.05 s" in caplog.text


def test_after_the_end_all_is_dropped(tmp_path: Path, counts: Counts) -> None:
    log = make_log(make_files(tmp_path), counts)
    log.close()
    tell(log, make_record())
    assert counts.dropped == 1


class Disk:
    """A disk that can be full: a write then stops short, and the next one fails."""

    def __init__(self, *, is_full: bool = False, can_cut: bool = True) -> None:
        self.is_full, self.can_cut = is_full, can_cut

    def open(self, descriptor: int, mode: str) -> FileIO:
        disk = self

        class File(FileIO):
            is_short = False

            def write(self, data: Any) -> int:
                self.is_short = disk.is_full and not self.is_short
                if disk.is_full and not self.is_short:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data[:7] if self.is_short else data)

            def truncate(self, size: int | None = None) -> int:
                if not disk.can_cut:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return super().truncate(size)

        return File(descriptor, mode)


@pytest.mark.parametrize("can_cut", [True, False], ids=["cut off", "left torn"])
def test_a_full_disk_costs_records_and_not_the_log(
    can_cut: bool,
    tmp_path: Path,
    counts: Counts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where what was half written cannot be cut off, a reader that skips it still finds all that came after."""
    disk = Disk(can_cut=can_cut)
    monkeypatch.setattr(files_module, "FileIO", disk.open)
    monkeypatch.setattr(writer_module, "WRITE_SECONDS", 0.001)
    log = make_log(make_files(tmp_path), counts)
    for number in range(9):
        disk.is_full = 3 <= number < 6
        tell(log, make_record(number))
        until(lambda told=number + 1: counts.written + counts.dropped == told)
    log.close()
    assert (counts.written, counts.dropped) == (6, 3)
    found = [record.request.request_id for record in read_log(tmp_path, skip_damaged=not can_cut)]
    assert found == ["r-0", "r-1", "r-2", "r-6", "r-7", "r-8"]
    # Its own alone: threads that tests before it have left behind may complain of a collector that is gone.
    ours = [record for record in caplog.records if record.name == writer_module.logger.name]
    complaints = [record for record in ours if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in complaints] == [
        "the request log drops records, and goes on trying: [Errno 28] No space left on device"
    ]


def test_no_half_file_is_left_when_the_disk_is_full_at_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "FileIO", Disk(is_full=True).open)
    files = make_files(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        files.append(make_frame(make_records(1)))
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_the_writer_stays_there(
    tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(raw: bytes, num_records: int) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(writer_module, "encode_frame", break_down)
    log = make_log(make_files(tmp_path), counts)
    tell(log, make_record())
    until(lambda: "the request log has stopped" in caplog.text)
    log.close()
    tell(log, make_record())
    assert (counts.written, counts.dropped) == (0, 2)


def test_old_files_are_deleted_and_foreign_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep me")
    files = make_files(tmp_path, max_file_bytes=1, max_files=3)
    for number in range(12):
        files.append(make_frame(make_records(1, number)))
    files.close()
    assert [path.name for path in log_files(tmp_path)] == [f"recalls-{n:08}.rlog" for n in (10, 11, 12)]
    assert [record.request.request_id for record in read_log(tmp_path)] == ["r-9", "r-10", "r-11"]
    assert (tmp_path / "notes.txt").exists()


def test_a_process_begins_a_file_of_its_own_after_those_of_the_last(tmp_path: Path) -> None:
    for number in range(2):
        files = make_files(tmp_path)
        files.append(make_frame(make_records(1, number)))
        files.close()
    assert len(log_files(tmp_path)) == 2
    assert [record.request.request_id for record in read_log(tmp_path)] == ["r-0", "r-1"]


def test_a_file_ends_when_it_is_old(tmp_path: Path) -> None:
    files = make_files(tmp_path, max_file_seconds=0.02)
    for number in range(2):
        files.append(make_frame(make_records(1, number)))
        time.sleep(0.03)
    files.close()
    assert len(log_files(tmp_path)) == 2


def test_a_file_that_someone_deletes_is_begun_anew(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.append(make_frame(make_records(1, 0)))
    log_files(tmp_path)[0].unlink()
    files.append(make_frame(make_records(1, 1)))
    files.close()
    assert [record.request.request_id for record in read_log(tmp_path)] == ["r-1"]


def test_files_are_not_for_everyone(tmp_path: Path) -> None:
    files = make_files(tmp_path)
    files.append(make_frame(make_records(1)))
    files.close()
    assert log_files(tmp_path)[0].stat().st_mode & 0o137 == 0


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    open_directory(tmp_path / "made" / "for me")
    assert list((tmp_path / "made" / "for me").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"request_log_dir: .*file cannot be written to: File exists; give a"):
        open_directory(tmp_path / "file")


def test_a_request_of_four_mebibytes_is_logged(tmp_path: Path, counts: Counts) -> None:
    request = recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=["x" * 256] * 16_000))
    log = make_log(make_files(tmp_path), counts)
    tell(log, make_record(0, request, code=3, reason="INVALID_REQUEST"))
    log.close()
    assert [len(record.request.history.item_ids) for record in read_log(tmp_path)] == [16_000]
