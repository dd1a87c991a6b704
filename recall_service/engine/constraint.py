"""What may follow a beam: the children of its node in a catalogue's trie, or any token at all."""

import copy
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from item_catalog.trie import PrefixTrie


class Children(NamedTuple):
    """The legal continuations of some rows, parent by parent and in ascending code: int64 [candidates] each.

    counts: int64 [rows], how many children each row has.
    """

    parents: Tensor
    tokens: Tensor
    nodes: Tensor
    counts: Tensor


NO_TOKEN = -1


class TokenRange(NamedTuple):
    """Neighbouring tokens, first to end - 1."""

    first: int
    end: int


class LevelArrays(NamedTuple):
    """One level of the trie as it lies on the device, for kernels that walk it themselves.

    offsets: int32 or int64 [nodes + 1]; the children of a node are numbered offsets[node] to offsets[node + 1] - 1.
    codes: int16 [children], the bits of a uint16. tokens: int64 [codebook_size], of every code.
    live: bool [children], which of them lead to a leaf that the filter keeps; None: all.
    max_children: how many the node with the most has, live or not.
    """

    offsets: Tensor
    codes: Tensor
    tokens: Tensor
    live: Tensor | None
    max_children: int


class TrieConstraint:
    """A PrefixTrie on the device, speaking the model's token ids.

    level_tokens: per level, the token id of every code, int64 [codebook_size]; ids within a level are distinct.
    A code that no SID uses may have NO_TOKEN.
    Raises ValueError when codebooks and trie disagree.
    """

    def __init__(
        self, trie: PrefixTrie, level_tokens: Sequence[NDArray[np.int64]], device: torch.device | str = "cpu"
    ) -> None:
        sizes = tuple(len(tokens) for tokens in level_tokens)
        if sizes != trie.layout.codebook_sizes:
            raise ValueError(f"level_tokens: sizes {sizes}; the trie's codebooks are {trie.layout.codebook_sizes}")
        for level, (tokens, codes) in enumerate(zip(level_tokens, trie.codes, strict=True)):
            if tokens.min() < NO_TOKEN:
                raise ValueError(f"level_tokens[{level}]: token id {tokens.min()}; ids are 0 and up, or NO_TOKEN")
            known = tokens[tokens != NO_TOKEN]
            if len(np.unique(known)) != len(known):
                raise ValueError(f"level_tokens[{level}]: two codes share a token id; give each its own")
            if (tokens[codes] == NO_TOKEN).any():
                raise ValueError(f"level_tokens[{level}]: a code of the trie has no token; give it one")
        self.num_steps = trie.num_levels
        self.max_token = max(int(tokens.max()) for tokens in level_tokens)
        self._offsets = [_as_tensor(offsets).to(device) for offsets in trie.offsets]
        self._codes = [_as_tensor(codes.view(np.int16)).to(device) for codes in trie.codes]  # sign undone below
        self._level_tokens = [torch.as_tensor(tokens, dtype=torch.int64, device=device) for tokens in level_tokens]
        self._codebooks = [tokens[tokens != NO_TOKEN] for tokens in self._level_tokens]
        self._token_ranges = [TokenRange(int(ids.min()), int(ids.max()) + 1) for ids in self._codebooks]
        self._are_neighbours = [bool((ids.diff() == 1).all()) for ids in self._codebooks]
        self._max_children = [int(np.diff(offsets).max()) for offsets in trie.offsets]
        self._live: list[Tensor | None] = [None] * trie.num_levels

    def keeping(self, live_leaves: NDArray[np.bool_]) -> "TrieConstraint":
        """The same trie, of which a search sees only what leads to a leaf that is kept: bool [leaves].

        Shares everything but a bitmap a level, a byte for each node. A node is live if any of its children is.
        Raises ValueError when there is not one value for each leaf.
        """
        if len(live_leaves) != (num_leaves := len(self._codes[-1])):
            raise ValueError(f"live_leaves: {len(live_leaves)} values; the trie has {num_leaves} leaves")
        filtered = copy.copy(self)
        live = _as_tensor(live_leaves).to(self._offsets[0].device)
        filtered._live = [live]
        for offsets in reversed(self._offsets[1:]):
            num_live_before = functional.pad(live.cumsum(0), (1, 0))
            live = num_live_before[offsets[1:].long()] > num_live_before[offsets[:-1].long()]
            filtered._live.insert(0, live)
        return filtered

    def codebook(self, level: int) -> Tensor:
        """The token ids of a level, int64 [codes that have one]."""
        return self._codebooks[level]

    def token_range(self, level: int) -> TokenRange:
        """The narrowest range of tokens that holds a level's codebook."""
        return self._token_ranges[level]

    def codebook_columns(self, level: int, first_token: int) -> slice | Tensor:
        """A level's codebook as columns of logits from first_token on: a slice where it is neighbours in order."""
        if self._are_neighbours[level]:
            first, end = self._token_ranges[level]
            return slice(first - first_token, end - first_token)
        return self._codebooks[level] - first_token

    def level_arrays(self, level: int) -> LevelArrays:
        """What a kernel needs to find the children of nodes at depth `level`."""
        return LevelArrays(
            self._offsets[level],
            self._codes[level],
            self._level_tokens[level],
            self._live[level],
            self._max_children[level],
        )

    def children(self, level: int, nodes: Tensor) -> Children:
        """All live children of nodes int64 [rows] at depth `level`: a ragged list, flat."""
        starts = self._offsets[level][nodes].long()
        counts = self._offsets[level][nodes + 1].long() - starts
        parents = torch.repeat_interleave(counts)  # row 0 counts[0] times, row 1 counts[1] times, ...
        before = counts.cumsum(0) - counts  # candidates of earlier rows
        children = torch.arange(len(parents), device=nodes.device) + (starts - before)[parents]
        live = self._live[level]
        if live is not None:
            is_live = live[children]
            parents, children = parents[is_live], children[is_live]
            counts = parents.bincount(minlength=len(nodes))
        codes = self._codes[level][children].long() & 0xFFFF
        return Children(parents, self._level_tokens[level][codes], children, counts)


def _as_tensor(array: NDArray[np.generic]) -> Tensor:
    """Share the array's memory, mapped files included. Nobody writes through it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)
