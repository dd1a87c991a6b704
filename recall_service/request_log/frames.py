"""The layout of a request log file. Knows neither directories nor what is damaged where.

    file   = magic (8 bytes), format version, CRC-32 of both; then frames to the end of the file
    frame  = magic (4 bytes), number of records, length of the block, length of what it holds, CRC-32 of the block,
             CRC-32 of these five; then the block
    block  = a LoggedRecalls message, compressed with Zstandard

Numbers in the headers are little-endian uint32. Each frame stands alone, so that damage costs one; its magic, with a
checksum of its own header, lets a reader find the next.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall, LoggedRecalls

FILE_MAGIC = b"RECALLOG"
FRAME_MAGIC = b"\xf7RLF"  # the first byte is in no UTF-8 text
FORMAT_VERSION = 1

_FILE_START = struct.Struct("<8sI")
FRAME_START = struct.Struct("<4sIIII")
_CRC = struct.Struct("<I")
FILE_HEADER_BYTES = _FILE_START.size + _CRC.size
FRAME_HEADER_BYTES = FRAME_START.size + _CRC.size

# A writer ends a block long before; a header that says more was not made by one. Both bounds are needed: a record of
# two bytes takes hundreds once it is read, and so much of a frame as these let through takes 200 MiB at most.
MAX_BLOCK_BYTES = 16 * 1024**2
MAX_BLOCK_RECORDS = 16_384
MAX_RECORD_BYTES = MAX_BLOCK_BYTES // 2  # with what is before it in its block

_RECORD_TAG = b"\x0a"  # field 1 of LoggedRecalls, of known length

# At a fifth of zlib's cost, and smaller; more effort buys little.
_CODEC = pa.Codec("zstd", compression_level=1)


class Damaged(Exception):
    """Bytes that no writer left like this; the message says in what way."""


class FrameHeader(NamedTuple):
    """What the block of a frame must be: its length in the file, compressed, and what it holds."""

    num_records: int
    block_len: int
    raw_len: int
    block_crc: int


def file_header(version: int = FORMAT_VERSION) -> bytes:
    """What every file begins with."""
    return with_crc(_FILE_START.pack(FILE_MAGIC, version))


def format_version(header: bytes) -> int:
    """The version that the first bytes of a file name. Raises Damaged when they are no header."""
    if len(header) < FILE_HEADER_BYTES:
        raise Damaged("the file ends in the middle of its header")
    if header != with_crc(header[: _FILE_START.size]) or not header.startswith(FILE_MAGIC):
        raise Damaged("the file's header is damaged")
    version: int = _FILE_START.unpack_from(header)[1]
    return version


def encode_frame(raw: bytes, num_records: int) -> bytes:
    """A frame around `raw`, which is a serialised LoggedRecalls of `num_records`."""
    block: bytes = _CODEC.compress(raw, asbytes=True)
    return with_crc(FRAME_START.pack(FRAME_MAGIC, num_records, len(block), len(raw), zlib.crc32(block))) + block


def frame_header(header: bytes) -> FrameHeader:
    """What the first bytes of a frame say. Raises Damaged when they are none."""
    if len(header) < FRAME_HEADER_BYTES:
        raise Damaged("the file ends in the middle of a frame's header")
    if header != with_crc(header[: FRAME_START.size]) or not header.startswith(FRAME_MAGIC):
        raise Damaged("a frame's header is damaged")
    frame = FrameHeader(*FRAME_START.unpack_from(header)[1:])
    if max(frame.block_len, frame.raw_len) > MAX_BLOCK_BYTES:
        raise Damaged(f"a frame claims {max(frame.block_len, frame.raw_len):,} bytes, beyond {MAX_BLOCK_BYTES:,}")
    if frame.num_records > MAX_BLOCK_RECORDS:
        raise Damaged(f"a frame claims {frame.num_records:,} records, beyond {MAX_BLOCK_RECORDS:,}")
    return frame


def decode_block(frame: FrameHeader, block: bytes) -> Sequence[LoggedRecall]:
    """The records of a frame. Raises Damaged unless all of them are there."""
    if len(block) < frame.block_len:
        raise Damaged(f"the file ends {frame.block_len - len(block):,} bytes before its last frame does")
    if zlib.crc32(block) != frame.block_crc:
        raise Damaged("a frame's checksum does not fit its contents")
    try:
        raw = _CODEC.decompress(block, frame.raw_len, asbytes=True)
        if not _holds(raw, frame.num_records):
            raise Damaged(f"a frame does not hold the {frame.num_records:,} records that its header says")
        return LoggedRecalls.FromString(raw).records
    except (pa.ArrowException, OSError, DecodeError) as error:
        raise Damaged(f"a frame does not hold what its header says: {error}") from None


def _holds(raw: bytes, num_records: int) -> bool:
    """Whether `raw` is so many records one after another, found out without making one."""
    position = 0
    for _ in range(num_records):
        if raw[position : position + 1] != _RECORD_TAG:
            return False
        length, shift = 0, 0
        while True:  # seven bits a byte, the lowest first; the last has its top bit clear
            position += 1
            if position >= len(raw) or shift > 28:
                return False
            length |= (raw[position] & 0x7F) << shift
            shift += 7
            if raw[position] < 0x80:
                break
        position += 1 + length
    return position == len(raw)


def with_crc(start: bytes) -> bytes:
    """A header: its fields, and their checksum."""
    return start + _CRC.pack(zlib.crc32(start))
