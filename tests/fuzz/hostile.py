"""The words of this package: a hostile input, what checks it, and what it means that a check failed."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol, Self


class Hostile(NamedTuple):
    """One input. place: which file, method or message `data` is meant for; without a line break."""

    place: str
    data: bytes

    def to_bytes(self) -> bytes:
        """As a file: a line with the place, then the data."""
        return self.place.encode() + b"\n" + self.data

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The inverse of `to_bytes`."""
        place, _, data = content.partition(b"\n")
        return cls(place.decode(), data)


class Broken(Exception):
    """A promise that an input broke, although no exception of its own came out."""


class Target(Protocol):
    """One reader of bytes that strangers may have written.

    Made with a directory of its own, which it may fill. `make` draws only from the generator it is given, so that
    seed and number of an input are enough to make it again.
    """

    def __init__(self, directory: Path) -> None: ...

    def make(self, generator: random.Random) -> Hostile:
        """The next input: something valid, spoilt."""

    def check(self, hostile: Hostile) -> None:
        """Read it. Raises whatever the reader must not raise, and Broken for what it must not return."""

    def close(self) -> None:
        """Let go of threads and files."""


def refused(error_kinds: tuple[type[Exception], ...], read: Callable[[], object]) -> bool:
    """Whether `read` raised one of `error_kinds`, with a word to say; anything else comes out."""
    try:
        read()
    except error_kinds as error:
        if not str(error):
            raise Broken("an error without a word") from error
        return True
    return False
