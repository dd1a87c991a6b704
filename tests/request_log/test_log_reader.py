"""What is written is read again; what is damaged costs the frame it is in, and is named."""

import errno
import os
import resource
import tracemalloc
import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recall_service.errors import RequestLogError
from recall_service.request_log import reader
from recall_service.request_log.files import log_files
from recall_service.request_log.frames import (
    FILE_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_START,
    MAX_BLOCK_BYTES,
    MAX_BLOCK_RECORDS,
    file_header,
    with_crc,
)
from recall_service.request_log.reader import LogDamage, read_log
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedAnswer, LoggedRecall
from tests.request_log.recalls import make_files, make_frame, make_records, random_bytes, write_file

FRAMES = [make_records(2), make_records(1, 2), make_records(3, 3)]


def read_skipping(path: Path) -> tuple[list[LoggedRecall], list[LogDamage]]:
    damages: list[LogDamage] = []
    return list(read_log(path, skip_damaged=True, on_damage=damages.append)), damages


texts = st.text(max_size=20)
records = st.builds(
    LoggedRecall,
    request=st.builds(
        recall_pb2.RecallRequest,
        request_id=texts,
        user_id=texts,
        history=st.builds(recall_pb2.ItemHistory, item_ids=st.lists(texts, max_size=5)),
    ),
    deadline_seconds=st.none() | st.floats(0, 10),
    status_code=st.integers(0, 16),
    answer=st.none() | st.builds(LoggedAnswer, scores=st.lists(st.floats(-100, 0), max_size=5)),
    total_seconds=st.floats(0, 10),
    in_batch=st.booleans(),
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(st.lists(records, min_size=1, max_size=4), max_size=12), max_file_bytes=st.integers(1, 600))
def test_what_was_written_is_read_in_its_order_however_it_was_rotated(
    frames: list[list[LoggedRecall]], max_file_bytes: int, tmp_path: Path
) -> None:
    for old in log_files(tmp_path):
        old.unlink()
    files = make_files(tmp_path, max_file_bytes=max_file_bytes)
    for frame in frames:
        files.append(make_frame(frame))
    files.close()
    if frames:
        assert list(read_log(tmp_path)) == [record for frame in frames for record in frame]
    for path in log_files(tmp_path):
        num_bytes = path.stat().st_size
        assert num_bytes <= max_file_bytes or len(list(reader.read_frames([path]))) == 1


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """What is whole is found wherever the file ends; only at the end of a frame is nothing wrong with it."""
    path = tmp_path / "whole"
    begins = write_file(path, FRAMES)
    data = path.read_bytes()
    cut = tmp_path / "cut"
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        num_whole = sum(end <= length for end in begins[1:])
        whole = [record for frame in FRAMES[:num_whole] for record in frame]
        found, damages = read_skipping(cut)
        assert found == whole
        if length in begins:
            assert damages == []
            assert list(read_log(cut)) == whole
        else:
            torn_at = max([0, *(begin for begin in begins if begin < length)])
            assert [damage.offset for damage in damages] == [torn_at]
            with pytest.raises(RequestLogError, match=rf"cut, byte {torn_at:,}: .*the file ends .*; skip damaged"):
                list(read_log(cut))


def test_a_bit_that_flips_in_any_byte_costs_one_frame_at_most(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    begins = write_file(path, FRAMES)
    data = path.read_bytes()
    flipped = tmp_path / "flipped"
    for offset in range(len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << offset % 8
        flipped.write_bytes(damaged)
        found, damages = read_skipping(flipped)
        hit = sum(begin <= offset for begin in begins) - 1  # -1: the file's header
        assert found == [record for number, frame in enumerate(FRAMES) if number != hit for record in frame]
        assert [damage.offset for damage in damages] == [begins[hit] if hit >= 0 else 0]


@pytest.mark.parametrize("search_bytes", [1, 7, 1 << 20])
def test_bytes_that_are_lost_or_added_cost_one_frame(
    search_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a search reads at a time, and although the noise holds the magic of a frame."""
    monkeypatch.setattr(reader, "_SEARCH_BYTES", search_bytes)
    path = tmp_path / "log"
    begins = write_file(path, FRAMES)
    data = path.read_bytes()
    middle = begins[1] + 40
    noise = FRAME_MAGIC + random_bytes(50) + FRAME_MAGIC
    for changed in (data[: middle - 20] + data[middle:], data[:middle] + noise + data[middle:]):
        path.write_bytes(changed)
        found, damages = read_skipping(path)
        assert found == FRAMES[0] + FRAMES[2]
        assert [damage.offset for damage in damages] == [begins[1]]
    path.write_bytes(data[: begins[1]] + noise + data[begins[1] :])
    assert read_skipping(path)[0] == [record for frame in FRAMES for record in frame]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PAR1" + random_bytes(100), "byte 0: is no request log; give a file that the service wrote"),
        (b"x", "byte 0: is no request log"),
        (file_header(2), "byte 8: format version 2 is newer than 1, .*; read it with a newer version"),
        (file_header(0), "byte 8: format version 0 is older than 1, .*; read it with an older version"),
    ],
    ids=["another format", "one byte", "newer", "older"],
)
@pytest.mark.parametrize("skip_damaged", [False, True])
def test_what_is_no_log_of_this_version_is_refused(
    data: bytes, message: str, skip_damaged: bool, tmp_path: Path
) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(data)
    with pytest.raises(RequestLogError, match=f"foreign, {message}"):
        list(read_log(path, skip_damaged=skip_damaged))


def test_a_path_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(RequestLogError, match="nowhere: no such file; give a request log"):
        list(read_log(tmp_path / "nowhere"))
    (tmp_path / "recalls-1.txt").write_text("not ours")
    with pytest.raises(RequestLogError, match="holds no request log; give the directory that request_log_dir names"):
        list(read_log(tmp_path))


def test_a_file_that_must_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = tmp_path / "log"
    write_file(path, FRAMES)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RequestLogError, match="log: cannot be read: Permission denied; give a readable file"):
        list(read_log(path))


def frame_of(block: bytes, *, num_records: int, raw_len: int, block_len: int | None = None) -> bytes:
    """A frame whose checksums are right and whose contents need not be."""
    length = len(block) if block_len is None else block_len
    return with_crc(FRAME_START.pack(FRAME_MAGIC, num_records, length, raw_len, zlib.crc32(block))) + block


def compressed(raw: bytes) -> bytes:
    return pa.Codec("zstd").compress(raw, asbytes=True)


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(compressed(bytes(1 << 26)), num_records=1, raw_len=10),
        frame_of(compressed(b"\x0a\x05abc"), num_records=1, raw_len=5),
        frame_of(compressed(b"\xff" * 12), num_records=1, raw_len=12),
        frame_of(compressed(b"\x0a\x00"), num_records=2, raw_len=2),
        frame_of(compressed(b"\x0a\x00"), num_records=1, raw_len=3),
        frame_of(random_bytes(30), num_records=1, raw_len=1),
        frame_of(b"", num_records=1, raw_len=1, block_len=MAX_BLOCK_BYTES + 1),
        frame_of(b"", num_records=MAX_BLOCK_RECORDS + 1, raw_len=1),
        frame_of(compressed(b"\x0a\x00" * 100), num_records=99, raw_len=200),
        frame_of(compressed(b"\x0a\xff\xff\xff\xff\xff\x00"), num_records=1, raw_len=7),
        frame_of(compressed(b"\x12\x00"), num_records=1, raw_len=2),
    ],
    ids=[
        *("a bomb", "a record cut short", "no message", "a record too few", "too short", "not compressed", "too large"),
        *("too many records", "more records than it says", "a record without end", "another field"),
    ],
)
def test_a_frame_that_lies_costs_itself(frame: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_file(path, [FRAMES[0]])
    path.write_bytes(path.read_bytes() + frame + make_frame(FRAMES[1]))
    tracemalloc.start()
    found, damages = read_skipping(path)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == FRAMES[0] + FRAMES[1]
    assert len(damages) == 1
    assert peak_bytes < 8 * 1024**2


@pytest.mark.parametrize("num_records", [1, MAX_BLOCK_RECORDS])
def test_no_frame_takes_much_memory(num_records: int, tmp_path: Path) -> None:
    """Records of two bytes, which take hundreds once they are read: a frame of kilobytes wants gigabytes."""
    raw = b"\x0a\x00" * (MAX_BLOCK_BYTES // 2)
    path = tmp_path / "log"
    path.write_bytes(file_header() + frame_of(compressed(raw), num_records=num_records, raw_len=len(raw)))
    assert path.stat().st_size < 4_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with pytest.raises(RequestLogError, match=r"does not hold the .* its header says"):
        list(read_log(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < 200_000_000


def test_a_record_that_is_kept_does_not_keep_its_frame(tmp_path: Path) -> None:
    """Whoever samples a log keeps few records of many."""
    large = make_records(1)
    large[0].request.user_id = "x" * 10_000_000
    write_file(tmp_path / "log", [make_records(1) + large])
    before = resident_bytes()
    kept = [next(read_log(tmp_path / "log")) for _ in range(20)]
    assert resident_bytes() - before < 100_000_000
    assert len(kept) == 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_of(frames: Sequence[Sequence[LoggedRecall]], path: Path) -> int:
    write_file(path, frames)
    tracemalloc.start()
    num_records = sum(1 for _ in read_log(path))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_records == sum(map(len, frames))
    return peak_bytes


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    frame = make_records(100)
    short, long = peak_of([frame] * 5, tmp_path / "short"), peak_of([frame] * 100, tmp_path / "long")
    assert long < 1.5 * short


def test_a_header_alone_is_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(file_header())
    assert path.stat().st_size == FILE_HEADER_BYTES
    assert list(read_log(path)) == []
