"""The log gives back the batches written to it, whatever was cut off or altered: a prefix of them, or a clear error."""

import json
import os
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from item_catalog.errors import CatalogError
from item_catalog.updating import update_log
from item_catalog.updating.update_log import HEADER_BYTES, LOG_START, LogEnd, append, encode_updates, log_end, read_log
from item_catalog.updating.updates import ItemUpdates, ItemUpsert
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


def version(number: int) -> str:
    return f"{number:032x}"


def write(path: Path, batches: list[ItemUpdates]) -> list[LogEnd]:
    ends = [LOG_START]
    for number, updates in enumerate(batches):
        ends.append(append(path, ends[-1], encode_updates(updates), version(number), version(number + 1)))
    return ends


def read(path: Path) -> list[ItemUpdates]:
    return [logged.updates for logged in read_log(path)]


def test_what_was_written_comes_back(log: Path):
    ends = write(log, BATCHES)
    logged = list(read_log(log))
    assert [one.updates for one in logged] == BATCHES
    assert [(one.before, one.after) for one in logged] == [
        (version(number), version(number + 1)) for number in range(3)
    ]
    assert [LOG_START, *(one.end for one in logged)] == ends
    assert ends[-1].offset == log.stat().st_size
    assert log_end(log) == ends[-1]
    assert list(read_log(log, ends[1])) == logged[1:]
    assert type(logged[0].updates.upserts[0].attributes["stock"]) is bool


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.builds(ItemUpsert, TEXT_IDS, st.none() | st.tuples(st.integers(0, 9)), attributes())))
def test_any_batch_comes_back(drawn: list[ItemUpsert], log: Path):
    append(log, LOG_START, encode_updates(ItemUpdates(tuple(drawn))), version(0), version(1))
    (updates,) = read(log)
    assert repr(updates) == repr(ItemUpdates(tuple(drawn)))  # 1 and 1.0 and -0.0 stay what they were


def test_no_file_is_no_empty_log(tmp_path: Path):
    with pytest.raises(CatalogError, match="absent: cannot be read: No such file or directory; restore it"):
        read(tmp_path / "absent")


def test_every_truncation_leaves_the_batches_before_it(written: Path):
    content = written.read_bytes()
    ends = [0, *(logged.end.offset for logged in read_log(written))]
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
    second = next(read_log(written)).end.offset
    content = bytearray(written.read_bytes())
    content[second + HEADER_BYTES] ^= 1
    written.write_bytes(content)
    batches = read_log(written)
    assert next(batches).updates == BATCHES[0]
    with pytest.raises(CatalogError, match=f"damaged at byte {second}: the checksum of its batch is wrong"):
        next(batches)


@pytest.mark.parametrize("tail", ["half a frame", "zeros"])
def test_a_torn_tail_is_cut_off_by_the_next_append(tail: str, written: Path):
    end = log_end(written)
    with written.open("ab") as file:
        file.write(written.read_bytes()[: HEADER_BYTES + 3] if tail == "half a frame" else bytes(3 * 2**20))
    assert read(written) == BATCHES
    append(written, end, encode_updates(BATCHES[1]), version(3), version(4))
    assert read(written) == [*BATCHES, BATCHES[1]]


@pytest.mark.parametrize("tail", [b"abc", bytes(100) + b"a"], ids=["text", "not zeros alone"])
def test_a_tail_that_begins_no_frame_is_damage(tail: bytes, written: Path):
    end = log_end(written).offset
    with written.open("ab") as file:
        file.write(tail)
    with pytest.raises(CatalogError, match=f"damaged at byte {end}: no frame begins there"):
        read(written)


def test_another_batch_of_the_same_length_is_another_end(written: Path):
    """Nobody goes on behind it, and nobody writes behind it."""
    payload = encode_updates(BATCHES[0])
    before = log_end(written)
    taken_back = append(written, before, payload, version(3), version(4))
    append(written, before, payload, version(3), version(5))
    content = written.read_bytes()
    assert log_end(written).offset == taken_back.offset
    with pytest.raises(CatalogError, match=rf"a\.log: not the batch that did ends at byte {taken_back.offset}; load"):
        list(read_log(written, taken_back))
    with pytest.raises(CatalogError, match=f"not the batch that did ends at byte {taken_back.offset}"):
        append(written, taken_back, payload, version(4), version(6))
    assert written.read_bytes() == content


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_a_full_disk_leaves_the_log_as_it_was(fails: str, written: Path, monkeypatch: pytest.MonkeyPatch):
    before, end = written.read_bytes(), log_end(written)

    def full(*arguments: object) -> None:
        if fails == "write":
            written.write_bytes(before + b"half a fra")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((update_log, "_write_all") if fails == "write" else (os, "fsync")), full)
    with pytest.raises(CatalogError, match=r"a\.log: cannot be written: No space left on device; free space"):
        append(written, end, encode_updates(BATCHES[0]), version(3), version(4))
    assert written.read_bytes() == before


def test_too_large_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(update_log, "MAX_PAYLOAD_BYTES", 100)
    with pytest.raises(CatalogError, match=r"updates: \d+ bytes in one batch; give at most 100, in several batches"):
        encode_updates(ItemUpdates(removals=("x" * 100,)))


def frame(payload: bytes, length: int | None = None) -> bytes:
    header = b"IUL1" + (len(payload) if length is None else length).to_bytes(4, "little") + bytes(32)
    header += xxhash.xxh3_64_digest(header)
    return header + payload + xxhash.xxh3_128_digest(header + payload)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(frame(b"", 2**32 - 1), id="length"),
        pytest.param(frame(b"\x80\x04."), id="pickle"),
        pytest.param(frame(b"[]"), id="list"),
        pytest.param(frame(json.dumps({"removals": []}).encode()), id="field missing"),
        pytest.param(frame(b"[" * 100_000), id="deep"),
        pytest.param(frame(json.dumps({"upserts": [["a"]], "removals": []}).encode()), id="short row"),
    ],
)
def test_forged_frames_are_refused_without_allocating(content: bytes, log: Path):
    log.write_bytes(content)
    with pytest.raises(
        CatalogError, match=r"a\.log: damaged at byte 0: (a frame of 4,294,967,295 bytes|no batch of up)"
    ):
        read(log)
