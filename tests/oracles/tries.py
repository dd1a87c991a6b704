"""Random catalogues, and a ten-line way from a set of SIDs to the arrays of a PrefixTrie."""

from collections import Counter
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from item_catalog.sid import SidLayout
from item_catalog.trie import PrefixTrie
from recall_service.engine.constraint import TrieConstraint

Sid = tuple[int, ...]


def trie_of(sids: set[Sid], codebook_sizes: tuple[int, ...]) -> PrefixTrie:
    """The trie of some SIDs, by listing every prefix of every length."""
    offsets, codes = [], []
    for level in range(len(codebook_sizes)):
        children = sorted({sid[: level + 1] for sid in sids})
        counts = Counter(child[:level] for child in children)
        offsets.append(np.cumsum([0, *(counts[parent] for parent in sorted(counts))]).astype(np.int32))
        codes.append(np.array([child[-1] for child in children], np.uint16))
    return PrefixTrie(SidLayout(codebook_sizes), tuple(offsets), tuple(codes))


def random_sids(rng: np.random.Generator, codebook_sizes: tuple[int, ...], count: int) -> set[Sid]:
    """Up to `count` distinct SIDs; at least one."""
    columns = [rng.integers(0, size, count) for size in codebook_sizes]
    return {tuple(int(code) for code in sid) for sid in zip(*columns, strict=True)}


def nodes_leading_to(some: Collection[Sid], every: Collection[Sid]) -> list[NDArray[np.bool_]]:
    """For each level, which of the prefixes of all SIDs, in order, begin one of some."""
    num_levels = len(next(iter(every)))
    flags = []
    for depth in range(1, num_levels + 1):
        wanted = {sid[:depth] for sid in some}
        flags.append(np.array([prefix in wanted for prefix in sorted({sid[:depth] for sid in every})], bool))
    return flags


def random_level_tokens(
    rng: np.random.Generator, codebook_sizes: tuple[int, ...], vocab_size: int
) -> list[NDArray[np.int64]]:
    """Token ids of every level's codes, in no order; levels may share ids."""
    return [rng.permutation(vocab_size)[:size].astype(np.int64) for size in codebook_sizes]


class Catalogue:
    """One set of SIDs in both tongues: plain sets for oracles, a TrieConstraint for the engine."""

    def __init__(self, sids: set[Sid], level_tokens: list[NDArray[np.int64]]) -> None:
        sizes = tuple(len(tokens) for tokens in level_tokens)
        self.sids = sids
        self.level_tokens = [[int(token) for token in tokens] for tokens in level_tokens]
        self.constraint = TrieConstraint(trie_of(sids, sizes), level_tokens)
        self._children: dict[tuple[int, ...], list[int]] = {}
        for sid in sorted(sids):
            path = self.path(sid)
            for depth, token in enumerate(path):
                children = self._children.setdefault(path[:depth], [])
                if token not in children[-1:]:  # in order of codes, equal ones come together
                    children.append(token)

    @classmethod
    def random(
        cls, rng: np.random.Generator, codebook_sizes: tuple[int, ...], count: int, vocab_size: int
    ) -> "Catalogue":
        """Up to `count` random SIDs and random token ids."""
        return cls(random_sids(rng, codebook_sizes, count), random_level_tokens(rng, codebook_sizes, vocab_size))

    @property
    def num_levels(self) -> int:
        """Codes per SID."""
        return len(self.level_tokens)

    def num_prefixes(self, depth: int) -> int:
        """Distinct prefixes of that length."""
        return len({sid[:depth] for sid in self.sids})

    @property
    def widest(self) -> int:
        """A beam this wide never prunes."""
        return max(self.num_prefixes(depth) for depth in range(1, self.num_levels + 1))

    def path(self, sid: Sid) -> tuple[int, ...]:
        """The SID as token ids."""
        return tuple(tokens[code] for tokens, code in zip(self.level_tokens, sid, strict=True))

    def children(self, path: tuple[int, ...]) -> list[int]:
        """The token ids that may follow a path, in ascending order of code."""
        return self._children[path]
