"""Files of a request log: damaged by a crash or a disk, or made to exhaust whoever reads them."""

import random
import struct
import zlib
from functools import partial
from pathlib import Path

from recall_service.errors import RequestLogError
from recall_service.request_log.frames import (
    FILE_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_START,
    MAX_BLOCK_RECORDS,
    encode_frame,
    file_header,
    with_crc,
)
from recall_service.request_log.reader import read_log
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall, LoggedRecalls
from tests.fuzz.hostile import Broken, Hostile, refused
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_messages import mutate_message
from tests.request_log.recalls import make_record

_RECORDS = [make_record(number) for number in range(6)]
_BOMB_BYTES = 15 * 1024**2


class Target:
    """Read strictly: records or one error. Read past damage: records, and damage told with offsets of the file."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "recalls-00000001.rlog"
        self._frames = [encode_frame(_raw(_RECORDS[:count]), count) for count in (1, 2, 3)]
        self._bombs = _bombs()

    def make(self, generator: random.Random) -> Hostile:
        frames = [self._frame(generator) for _ in range(generator.randrange(1, 4))]
        data = file_header(generator.choice((1, 1, 1, 1, 0, 2, 2**32 - 1))) + b"".join(frames)
        return Hostile("rlog", mutate_bytes(generator, data, self._frames[2]) if generator.random() < 0.5 else data)

    def check(self, hostile: Hostile) -> None:
        self._file.write_bytes(hostile.data)
        refused((RequestLogError,), partial(_read_all, self._file))
        if not refused((RequestLogError,), partial(_read_all, self._file, len(hostile.data))):
            return
        # Only a file that is none at all, or of another version, is refused although damage may be passed over.
        if hostile.data[:FILE_HEADER_BYTES] == file_header():
            raise Broken("a log with a sound header was refused although damage may be passed over")

    def close(self) -> None:
        pass

    def _frame(self, generator: random.Random) -> bytes:
        """Most are spoilt before their checksums are made."""
        chance = generator.random()
        if chance < 0.4:
            return generator.choice(self._frames)
        if chance < 0.405:
            return generator.choice(self._bombs)
        if chance < 0.6:
            frame = bytearray(generator.choice(self._frames))
            fields = list(FRAME_START.unpack_from(frame))
            fields[generator.randrange(1, len(fields))] = generator.choice((0, 1, 2**16, 2**26, 2**26 + 1, 2**32 - 1))
            return with_crc(FRAME_START.pack(*fields)) + frame[FRAME_HEADER_BYTES:]
        if chance < 0.8:
            block = mutate_bytes(generator, generator.choice(self._frames)[FRAME_HEADER_BYTES:])
            return with_crc(struct.pack("<4sIIII", b"\xf7RLF", 2, len(block), 400, zlib.crc32(block))) + block
        records = [mutate_message(generator, record) for record in _RECORDS[: generator.randrange(4)]]
        raw = _raw(records)
        return encode_frame(mutate_bytes(generator, raw) if chance > 0.9 else raw, len(records))


def _bombs() -> list[bytes]:
    """Frames of a few kilobytes that want to be large once they are read."""
    empty = b"\x0a\x00" * (_BOMB_BYTES // 2)  # a record of two bytes takes a hundred and more
    strings = recall_pb2.RecallRequest(history=recall_pb2.ItemHistory(item_ids=[""] * (_BOMB_BYTES // 2)))
    parts = LoggedRecall()
    for name in ("arrival_time", "request", "answer"):
        getattr(parts, name).SetInParent()
    parts.answer.completeness.SetInParent()
    parts.answer.timings.SetInParent()
    return [
        encode_frame(empty, 1),
        encode_frame(empty, len(empty) // 2),
        encode_frame(_raw([LoggedRecall(request=strings)]), 1),
        encode_frame(_raw([parts] * MAX_BLOCK_RECORDS), MAX_BLOCK_RECORDS),
        encode_frame(b"\x12\x80\x80\x80\x07".ljust(_BOMB_BYTES, b"\0"), 1),  # a field that nobody knows
    ]


def _raw(records: list[LoggedRecall]) -> bytes:
    return LoggedRecalls(records=records).SerializeToString()


def _read_all(file: Path, num_bytes: int | None = None) -> None:
    """num_bytes: of the file, when damage may be passed over."""
    damages = []
    for _ in read_log(file, skip_damaged=num_bytes is not None, on_damage=damages.append):
        pass
    if any(not 0 <= damage.offset <= (num_bytes or 0) for damage in damages):
        raise Broken(f"damage outside of the file: {[damage.offset for damage in damages]}")
