"""Semantic IDs: how many levels, how large each codebook, and how a SID becomes integers that sort as it does."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.errors import CatalogError

MAX_LEVELS = 8
MAX_CODEBOOK_SIZE = 65_536
_WORD_BITS = 63  # a key word stays a non-negative int64


@dataclass(frozen=True, slots=True)
class SidLayout:
    """The shape of every SID in a catalogue: one code per level, `codes[level] < codebook_sizes[level]`.

    Raises CatalogError when there are no levels, more than 8, or a codebook size outside 1..65,536.
    """

    codebook_sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.codebook_sizes) <= MAX_LEVELS:
            raise CatalogError(f"codebook_sizes: {len(self.codebook_sizes)} levels; give 1 to {MAX_LEVELS}")
        for level, size in enumerate(self.codebook_sizes):
            if not 1 <= size <= MAX_CODEBOOK_SIZE:
                raise CatalogError(f"codebook_sizes[{level}]: {size}; give 1 to {MAX_CODEBOOK_SIZE:,}")

    @property
    def num_levels(self) -> int:
        """How many codes a SID has."""
        return len(self.codebook_sizes)

    def check(self, codes: NDArray[np.integer]) -> None:
        """Raise CatalogError unless `codes` is an integer array [n, num_levels] with every code in its codebook."""
        if codes.ndim != 2 or codes.shape[1] != self.num_levels or not np.issubdtype(codes.dtype, np.integer):
            raise CatalogError(
                f"codes: {codes.dtype} of shape {codes.shape}; give integers of shape [items, {self.num_levels}]"
            )
        for level, size in enumerate(self.codebook_sizes):
            column = codes[:, level]
            if len(column) and not (column.min() >= 0 and column.max() < size):
                row = int(np.flatnonzero((column < 0) | (column >= size))[0])
                raise CatalogError(
                    f"codes: row {row} has code {column[row]} at level {level}; codes there are 0 to {size - 1}"
                )

    @property
    def word_bits(self) -> tuple[int, ...]:
        """How many bits each word of a packed SID has."""
        return tuple(sum(bits) for bits in self._bits_of_words())

    def pack(self, codes: NDArray[np.integer]) -> NDArray[np.int64]:
        """SIDs `[n, num_levels]` -> keys int64 `[n, words]` whose row order is the SIDs' lexicographic order.

        One word holds as many whole levels as fit 63 bits, so three levels of 8,192 codes are one word.
        """
        words = []  # kept apart, for each is read alone
        first = 0
        for bits_of_levels in self._bits_of_words():
            word = codes[:, first].astype(np.int64)
            for level, bits in enumerate(bits_of_levels[1:], first + 1):
                word <<= bits
                word |= codes[:, level].astype(np.int64)
            words.append(word)
            first += len(bits_of_levels)
        return np.stack(words).T

    def unpack(self, keys: NDArray[np.int64]) -> NDArray[np.uint16]:
        """The inverse of `pack`: keys int64 `[n, words]` -> SIDs uint16 `[n, num_levels]`, each level contiguous."""
        columns = []
        for key, bits_of_levels in zip(keys.T, self._bits_of_words(), strict=True):
            shift = sum(bits_of_levels)
            for bits in bits_of_levels:
                shift -= bits
                columns.append(((key >> shift) & ((1 << bits) - 1)).astype(np.uint16))
        return np.array(columns).T

    def _bits_of_words(self) -> list[list[int]]:
        """The bits of each level, word by word."""
        words: list[list[int]] = [[]]
        for size in self.codebook_sizes:
            bits = (size - 1).bit_length()
            if sum(words[-1]) + bits > _WORD_BITS:
                words.append([])
            words[-1].append(bits)
        return words
