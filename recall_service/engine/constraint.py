"""What may follow a beam: the children of its node in a catalogue's trie.

A filter may keep some of the nodes, a request may exclude some more; the others are no candidates, as if the trie had
none of them. Knows no items: which nodes these are, others say.
"""

import copy
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from item_catalog.trie import PrefixTrie
from recall_service.engine.transfer import to_device


class Children(NamedTuple):
    """The legal continuations of some rows, parent by parent and in ascending code: int64 [candidates] each.

    counts: int64 [rows], how many children each row has.
    """

    parents: Tensor
    tokens: Tensor
    nodes: Tensor
    counts: Tensor


NO_TOKEN = -1
_BLOCK = 1 << 20  # nodes looked at together: what is made of all of a large catalogue's at once would outweigh it


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
        for level, tokens in enumerate(level_tokens):
            if tokens.min() < NO_TOKEN:
                raise ValueError(f"level_tokens[{level}]: token id {tokens.min()}; ids are 0 and up, or NO_TOKEN")
            known = tokens[tokens != NO_TOKEN]
            if len(np.unique(known)) != len(known):
                raise ValueError(f"level_tokens[{level}]: two codes share a token id; give each its own")
            if len(known) < len(tokens) and (tokens[used_codes(trie, level)] == NO_TOKEN).any():
                raise ValueError(f"level_tokens[{level}]: a code of the trie has no token; give it one")
        self.num_steps = trie.num_levels
        self.max_token = max(int(tokens.max()) for tokens in level_tokens)
        self._device = torch.device(device)
        self._offsets = [_as_tensor(offsets).to(device) for offsets in trie.offsets]
        self._codes = [_as_tensor(codes.view(np.int16)).to(device) for codes in trie.codes]  # sign undone below
        self._level_tokens = [torch.as_tensor(tokens, dtype=torch.int64, device=device) for tokens in level_tokens]
        self._codebooks = [tokens[tokens != NO_TOKEN] for tokens in self._level_tokens]
        self._token_ranges = [TokenRange(int(ids.min()), int(ids.max()) + 1) for ids in self._codebooks]
        self._are_neighbours = [bool((ids.diff() == 1).all()) for ids in self._codebooks]
        self._max_children = [
            max(int(np.diff(block).max()) for block in _blocks(offsets, overlap=1)) for offsets in trie.offsets
        ]
        self._live: list[Tensor | None] = [None] * trie.num_levels
        self._dead: list[Tensor | None] = [None] * trie.num_levels

    @property
    def has_exclusions(self) -> bool:
        """Whether this is for one request alone. No kernel of fixed shapes knows of exclusions."""
        return any(dead is not None for dead in self._dead)

    def keeping(self, live_nodes: Sequence[NDArray[np.bool_]]) -> "TrieConstraint":
        """The same trie, of which a search sees the live nodes alone: for each level, bool [nodes at depth level + 1].

        A node is live if a leaf below it is. Shares everything, on a CPU the flags too.
        Raises ValueError when there is not one flag for each node.
        """
        given, needed = tuple(map(len, live_nodes)), tuple(map(len, self._codes))
        if given != needed:
            raise ValueError(f"live_nodes: {given} values; the trie has {needed} nodes below its root")
        filtered = copy.copy(self)
        filtered._live = [_as_tensor(live).to(self._device) for live in live_nodes]
        return filtered

    def without(self, dead_nodes: Sequence[NDArray[np.int64]]) -> "TrieConstraint":
        """The same without some nodes: for each level, int64 [n] at depth level + 1, ascending. For one request.

        With a node goes all that is below it, whether or not it is named. Costs by the nodes named; shares everything.
        Itself when none is named. Raises ValueError when there are not as many levels as the trie has.
        """
        if len(dead_nodes) != self.num_steps:
            raise ValueError(f"dead_nodes: {len(dead_nodes)} levels; the trie has {self.num_steps}")
        if not any(map(len, dead_nodes)):
            return self
        narrowed = copy.copy(self)
        narrowed._dead = [to_device(dead, self._device, torch.int64) if len(dead) else None for dead in dead_nodes]
        return narrowed

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
        """What a kernel needs to find the children of nodes at depth `level`; not of a constraint with exclusions."""
        assert not self.has_exclusions
        return LevelArrays(
            self._offsets[level],
            self._codes[level],
            self._level_tokens[level],
            self._live[level],
            self._max_children[level],
        )

    def children(self, level: int, nodes: Tensor) -> Children:
        """All children of nodes int64 [rows] at depth `level`, live and not excluded: a ragged list, flat."""
        starts = self._offsets[level][nodes].long()
        counts = self._offsets[level][nodes + 1].long() - starts
        parents = torch.repeat_interleave(counts)  # row 0 counts[0] times, row 1 counts[1] times, ...
        before = counts.cumsum(0) - counts  # candidates of earlier rows
        children = torch.arange(len(parents), device=nodes.device) + (starts - before)[parents]
        live, dead = self._live[level], self._dead[level]
        if live is not None or dead is not None:
            is_kept = torch.ones_like(children, dtype=torch.bool) if live is None else live.index_select(0, children)
            if dead is not None:
                is_kept[_dead_places(dead, starts, counts, before)] = False
            kept = is_kept.nonzero().squeeze(1)
            children = children.index_select(0, kept)
            counts = torch.searchsorted(kept, before + counts) - torch.searchsorted(kept, before)
            parents = torch.repeat_interleave(counts)
        codes = self._codes[level][children].long() & 0xFFFF
        return Children(parents, self._level_tokens[level][codes], children, counts)


def used_codes(trie: PrefixTrie, level: int) -> NDArray[np.bool_]:
    """Which codes of a level some SID has: bool [codebook_size]."""
    used = np.zeros(trie.layout.codebook_sizes[level], bool)
    for block in _blocks(trie.codes[level]):
        used[block] = True
    return used


def _dead_places(dead: Tensor, starts: Tensor, counts: Tensor, before: Tensor) -> Tensor:
    """Where dead nodes stand among the rows' children, laid end to end: int64 [n].

    Children of a row are numbered on from its start, so those that are dead are neighbours in `dead` int64, ascending.
    """
    firsts = torch.searchsorted(dead, starts)
    num_dead = torch.searchsorted(dead, starts + counts) - firsts
    rows = torch.repeat_interleave(num_dead)
    found = torch.arange(len(rows), device=dead.device) + (firsts - (num_dead.cumsum(0) - num_dead))[rows]
    return dead[found] + (before - starts)[rows]


def _blocks(array: NDArray[Any], overlap: int = 0) -> Iterator[NDArray[Any]]:
    """Views of an array, one after another; each begins with the last `overlap` values of the one before it."""
    for first in range(0, len(array) - overlap, _BLOCK):
        yield array[first : first + _BLOCK + overlap]


def _as_tensor(array: NDArray[np.generic]) -> Tensor:
    """Share the array's memory, mapped files included. Nobody writes through it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)
