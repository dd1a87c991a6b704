"""Bytes, spoilt without a thought of what they mean."""

import random

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 2**63 - 1, 2**63, 2**64 - 1)


def mutate_bytes(generator: random.Random, data: bytes, other: bytes = b"") -> bytes:
    """`data` after one to four changes; `other` is something valid that parts may be taken from."""
    spoilt = bytearray(data)
    for _ in range(generator.choice((1, 1, 1, 2, 4))):
        generator.choice(_CHANGES)(generator, spoilt, other)
    return bytes(spoilt)


def _flip_bit(generator: random.Random, data: bytearray, other: bytes) -> None:
    if data:
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)


def _set_byte(generator: random.Random, data: bytearray, other: bytes) -> None:
    if data:
        data[generator.randrange(len(data))] = generator.choice((0, 1, 0x0A, 0x22, 0x7F, 0x80, 0xFE, 0xFF))


def _set_number(generator: random.Random, data: bytearray, other: bytes) -> None:
    width = generator.choice((2, 4, 8))
    if len(data) >= width:
        at = generator.randrange(len(data) - width + 1)
        number = generator.choice(_NUMBERS) % (1 << (8 * width))
        data[at : at + width] = number.to_bytes(width, generator.choice(("little", "big")))


def _remove(generator: random.Random, data: bytearray, other: bytes) -> None:
    start, end = _span(generator, len(data))
    del data[start:end]


def _repeat(generator: random.Random, data: bytearray, other: bytes) -> None:
    start, end = _span(generator, len(data))
    data[start:start] = data[start:end] * generator.choice((1, 1, 2, 50))


def _insert(generator: random.Random, data: bytearray, other: bytes) -> None:
    at = generator.randrange(len(data) + 1)
    data[at:at] = generator.randbytes(generator.randrange(1, 9))


def _truncate(generator: random.Random, data: bytearray, other: bytes) -> None:
    del data[generator.randrange(len(data) + 1) :]


def _splice(generator: random.Random, data: bytearray, other: bytes) -> None:
    start, end = _span(generator, len(other))
    at, stop = _span(generator, len(data))
    data[at:stop] = other[start:end]


def _span(generator: random.Random, length: int) -> tuple[int, int]:
    """Most spans are short."""
    start = generator.randrange(length + 1)
    longest = length - start if generator.random() < 0.2 else min(16, length - start)
    return start, start + generator.randrange(longest + 1)


_CHANGES = (_flip_bit, _flip_bit, _set_byte, _set_number, _remove, _repeat, _insert, _truncate, _splice)
