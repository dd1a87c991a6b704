"""The log gives back the batches written to it, whatever was cut off or altered: a prefix of them, or a clear error."""

import json
import os
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from item_catalog import update_log
from item_catalog.errors import CatalogError
from item_catalog.update_log import HEADER_BYTES, append, read_log
from item_catalog.updates import ItemUpdates, ItemUpsert
from tests.item_catalog.update_strategies import TEXT_IDS, attributes

BATCHES = [
    ItemUpdates((ItemUpsert("7", (1, 2, 3), {"price": 0.1, "stock": True, "brand": None}),), ("8",)),
    ItemUpdates(removals=("é",)),
    ItemUpdates((ItemUpsert("a", None, {"published": 1}), ItemUpsert("b", (0, 0, 1)))),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "a.log"
    path.touch()
    return path


@pytest.fixture
def written(log: Path) -> Path:
    write(log, BATCHES)
    return log


def write(path: Path, batches: list[ItemUpdates]) -> list[int]:
    ends = [0]
    for number, updates in enumerate(batches):
        ends.append(append(path, ends[-1], updates, f"version {number}"))
    return ends


def read(path: Path) -> list[ItemUpdates]:
    return [logged.updates for logged in read_log(path)]


def test_what_was_written_comes_back(log: Path):
    ends = write(log, BATCHES)
    logged = list(read_log(log))
    assert [one.updates for one in logged] == BATCHES
    assert [one.version for one in logged] == ["version 0", "version 1", "version 2"]
    assert [0, *(one.end for one in logged)] == ends
    assert ends[-1] == log.stat().st_size
    assert list(read_log(log, ends[1])) == logged[1:]
    assert type(logged[0].updates.upserts[0].attributes["stock"]) is bool


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.builds(ItemUpsert, TEXT_IDS, st.none() | st.tuples(st.integers(0, 9)), attributes())))
def test_any_batch_comes_back(drawn: list[ItemUpsert], log: Path):
    append(log, 0, ItemUpdates(tuple(drawn)), "v")
    (updates,) = read(log)
    assert repr(updates) == repr(ItemUpdates(tuple(drawn)))  # 1 and 1.0 and -0.0 stay what they were


def test_no_file_is_no_empty_log(tmp_path: Path):
    with pytest.raises(CatalogError, match="absent: cannot be read: No such file or directory; restore it"):
        read(tmp_path / "absent")


def test_every_truncation_leaves_the_batches_before_it(written: Path):
    content = written.read_bytes()
    ends = [0, *(logged.end for logged in read_log(written))]
    for length in range(len(content)):
        written.write_bytes(content[:length])
        whole = sum(end <= length for end in ends[1:])
        assert read(written) == BATCHES[:whole], length


def test_every_altered_byte_is_found(written: Path):
    content = written.read_bytes()
    for offset in range(len(content)):
        for flip in (0x01, 0x80, 0xFF):
            written.write_bytes(content[:offset] + bytes([content[offset] ^ flip]) + content[offset + 1 :])
            with pytest.raises(CatalogError, match=r"a\.log: damaged at byte \d+: .*; restore the file"):
                read(written)


def test_batches_before_the_damage_are_read(written: Path):
    second = next(read_log(written)).end
    content = bytearray(written.read_bytes())
    content[second + HEADER_BYTES] ^= 1
    written.write_bytes(content)
    batches = read_log(written)
    assert next(batches).updates == BATCHES[0]
    with pytest.raises(CatalogError, match=f"damaged at byte {second}: the checksum of its batch is wrong"):
        next(batches)


def test_a_torn_tail_is_cut_off_by_the_next_append(written: Path):
    end = written.stat().st_size
    with written.open("ab") as file:
        file.write(written.read_bytes()[: HEADER_BYTES + 3])
    assert read(written) == BATCHES
    append(written, end, BATCHES[1], "v")
    assert read(written) == [*BATCHES, BATCHES[1]]


def test_a_tail_that_begins_no_frame_is_damage(written: Path):
    end = written.stat().st_size
    with written.open("ab") as file:
        file.write(b"\0\0\0")
    with pytest.raises(CatalogError, match=f"damaged at byte {end}: no frame begins there"):
        read(written)


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_full_disk_leaves_the_log_as_it_was(fails: str, written: Path, monkeypatch: pytest.MonkeyPatch):
    before = written.read_bytes()

    def full(*arguments: object) -> None:
        if fails == "write":
            written.write_bytes(before + b"half a fra")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((update_log, "_write_all") if fails == "write" else (os, "fsync")), full)
    with pytest.raises(CatalogError, match=r"a\.log: cannot be written: No space left on device; free space"):
        append(written, len(before), BATCHES[0], "v")
    assert written.read_bytes() == before


def test_too_large_a_batch_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(update_log, "MAX_PAYLOAD_BYTES", 100)
    with pytest.raises(CatalogError, match=r"updates: \d+ bytes in one batch; give at most 100, in several batches"):
        append(log, 0, ItemUpdates(removals=("x" * 100,)), "v")
    assert log.read_bytes() == b""


def frame(payload: bytes, length: int | None = None) -> bytes:
    header = b"IUL1" + (len(payload) if length is None else length).to_bytes(4, "little")
    header += xxhash.xxh3_128_digest(payload)
    return header + xxhash.xxh3_64_digest(header) + payload


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(frame(b"", 2**32 - 1), id="length"),
        pytest.param(frame(b"\x80\x04."), id="pickle"),
        pytest.param(frame(b"[]"), id="list"),
        pytest.param(frame(json.dumps({"version": "v", "removals": []}).encode()), id="field missing"),
        pytest.param(frame(b"[" * 100_000), id="deep"),
        pytest.param(frame(json.dumps({"version": "v", "upserts": [["a"]], "removals": []}).encode()), id="short row"),
    ],
)
def test_forged_frames_are_refused_without_allocating(content: bytes, log: Path):
    log.write_bytes(content)
    with pytest.raises(
        CatalogError, match=r"a\.log: damaged at byte 0: (a frame of 4,294,967,295 bytes|no batch of up)"
    ):
        read(log)
