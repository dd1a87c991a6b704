"""A column of a few different strings, as small numbers. They come from outside, so how many there are is bounded."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

MAX_NAMES = 64
OTHER = "other"  # what every name counts as that comes after the first 64


def bounded(name: str, known: Mapping[str, object]) -> str:
    """The name, if it is one of the first 64 or among the known; otherwise OTHER."""
    return name if name in known or len(known) < MAX_NAMES else OTHER


@dataclass(frozen=True, slots=True, eq=False)
class Category:
    """One name a row: `names[numbers[row]]`. numbers: int16 [rows]."""

    numbers: NDArray[np.int16]
    names: tuple[str, ...]

    def __getitem__(self, rows: NDArray[np.bool_]) -> Self:
        return type(self)(self.numbers[rows], self.names)

    def equals(self, name: str) -> NDArray[np.bool_]:
        """Which rows have this name: bool [rows]."""
        number = self.names.index(name) if name in self.names else -1
        rows: NDArray[np.bool_] = self.numbers == number
        return rows

    def counts(self) -> dict[str, int]:
        """How many rows have each name that any has and is not empty; by number of rows, then by name."""
        found = np.bincount(self.numbers, minlength=len(self.names)).tolist()
        counts = {name: count for name, count in zip(self.names, found, strict=True) if name and count}
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


class CategoryBuilder:
    """A Category that grows, by 2 bytes a row."""

    def __init__(self) -> None:
        self._numbers = array("h")
        self._known: dict[str, int] = {}

    def append(self, name: str) -> None:
        """One more row."""
        self._numbers.append(self._known.setdefault(bounded(name, self._known), len(self._known)))

    def build(self) -> Category:
        """What was appended so far."""
        return Category(np.array(self._numbers, np.int16), tuple(self._known))
