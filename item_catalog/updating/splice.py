"""Taking entries out of arrays and putting others in, all at once: what a few changes do to arrays of millions.

The kept runs between two changes are copied whole, so a change costs what copying the array once costs, however many
entries it has, and a few hundred nanoseconds for each run. Nothing is sorted or gathered. Offsets into what was spliced
are shifted the same way. This module knows no catalogue.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from item_catalog.trie import offset_dtype

_Scalar = TypeVar("_Scalar", bound=np.generic)


class _Runs(NamedTuple):
    """Neighbouring runs of the old entries, in order; before run i the new entries `firsts[i] : firsts[i + 1]` go."""

    bounds: list[int]
    is_kept: list[bool]
    firsts: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Splice:
    """What happens to a numbered sequence of `length` entries.

    removed: int64, the numbers of the entries that go, ascending.
    places: int64, ascending, 0..length; new entry k goes in front of the old entry `places[k]`, behind those new
        entries before it that have the same place.
    """

    length: int
    removed: NDArray[np.int64]
    places: NDArray[np.int64]
    _runs: _Runs = field(init=False)

    def __post_init__(self) -> None:
        bounds = np.unique(np.concatenate([[0, self.length], _run_bounds(self.removed), self.places]))
        is_removed = _contains(self.removed, bounds)
        firsts = np.searchsorted(self.places, bounds)
        runs = _Runs(bounds.tolist(), (~is_removed).tolist(), [*firsts.tolist(), len(self.places)])
        object.__setattr__(self, "_runs", runs)

    @property
    def changes_nothing(self) -> bool:
        """Whether nothing goes and nothing comes."""
        return not len(self.removed) and not len(self.places)

    @property
    def new_length(self) -> int:
        """How many entries there are afterwards."""
        return self.length - len(self.removed) + len(self.places)

    def apply(self, entries: NDArray[_Scalar], new: NDArray[_Scalar]) -> NDArray[_Scalar]:
        """Entries [length] and what comes [len(places)] -> [new_length]; the same array if nothing changes."""
        if self.changes_nothing:
            return entries
        pieces = [new[first:end] if is_new else entries[first:end] for is_new, first, end in self.pieces()]
        return np.concatenate(pieces) if pieces else entries[:0]

    def pieces(self) -> Iterator[tuple[bool, int, int]]:
        """Of the entries afterwards, in order: whether they are of the new ones, the first, and behind the last."""
        bounds, is_kept, firsts = self._runs
        for run, start in enumerate(bounds):
            if firsts[run] < firsts[run + 1]:
                yield True, firsts[run], firsts[run + 1]
            if is_kept[run] and start < self.length:
                yield False, start, bounds[run + 1]

    def numbers_of_old(self, old: NDArray[np.int64]) -> NDArray[np.int64]:
        """Old numbers int64 [n] -> where they are now; for one that went, where what followed it is."""
        before = np.searchsorted(self.places, old, side="right")
        return old + before - np.searchsorted(self.removed, old)

    def numbers_of_new(self) -> NDArray[np.int64]:
        """Where the new entries are, int64 [len(places)]."""
        return self.places + np.arange(len(self.places)) - np.searchsorted(self.removed, self.places)

    def all_numbers(self, dtype: np.dtype[Any]) -> NDArray[np.signedinteger]:
        """numbers_of_old of every old entry, [length]."""
        changes = np.concatenate([self.places, self.removed + 1])
        steps = np.concatenate([np.ones(len(self.places), np.int64), np.full(len(self.removed), -1)])
        numbers = np.arange(self.length, dtype=dtype)
        _add_steps(numbers, changes, steps)
        return numbers


def splice_offsets(
    offsets: NDArray[np.integer],
    owners: Splice,
    new_counts: NDArray[np.int64],
    gaining: NDArray[np.int64],
    losing: NDArray[np.int64],
) -> NDArray[np.signedinteger]:
    """CSR offsets [owners.length + 1] -> those after owners came and went, and gained or lost some of what they own.

    new_counts: int64 [len(owners.places)], how much each new owner has.
    gaining, losing: int64, old owners, as often as they gain or lose one thing. A removed owner loses all it has,
        whether or not it stands in `losing`.
    """
    losing = losing[~_contains(owners.removed, losing)]
    removed_counts = offsets[owners.removed + 1] - offsets[owners.removed]
    total = int(offsets[-1]) + int(new_counts.sum()) + len(gaining) - len(losing) - int(removed_counts.sum())
    # A new owner begins where the old one behind it begins; the end stays behind all of them.
    spliced = Splice(len(offsets), owners.removed, owners.places).apply(offsets, offsets[owners.places])
    shifted = spliced.astype(offset_dtype(total), copy=spliced is offsets)
    # What an owner gains moves whatever follows it, and a removed owner has nothing left to be followed.
    changed = owners.numbers_of_old(np.concatenate([gaining, losing]))
    places = [owners.numbers_of_new() + 1, changed + 1, owners.numbers_of_old(owners.removed)]
    steps = [new_counts, np.ones(len(gaining), np.int64), np.full(len(losing), -1), -removed_counts]
    _add_steps(shifted, np.concatenate(places), np.concatenate(steps))
    return shifted


def emptied_owners(
    offsets: NDArray[np.integer], gaining: NDArray[np.int64], losing: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The owners int64, ascending, that lose all they have and gain nothing; gaining, losing as in splice_offsets."""
    owners, losses = np.unique(losing, return_counts=True)
    loses_all = losses == offsets[owners + 1] - offsets[owners]
    emptied: NDArray[np.int64] = owners[loses_all & ~np.isin(owners, gaining)]
    return emptied


def splice_texts(texts: pa.LargeStringArray, splice: Splice, new: pa.LargeStringArray) -> pa.LargeStringArray:
    """Texts [length] and what comes [len(places)] -> the spliced texts, bytes copied run by run."""
    if splice.changes_nothing:
        return texts
    old, added = text_buffers(texts), text_buffers(new)
    pieces = []
    for is_new, first, end in splice.pieces():
        offsets, utf8 = added if is_new else old
        pieces.append(utf8[offsets[first] : offsets[end]])
    no_owners = splice.removed[:0]
    spliced_offsets = splice_offsets(old[0], splice, np.diff(added[0]), no_owners, no_owners).astype(np.int64)
    spliced_utf8 = np.concatenate(pieces) if pieces else old[1][:0]
    return pa.LargeStringArray.from_buffers(
        splice.new_length, pa.py_buffer(spliced_offsets), pa.py_buffer(spliced_utf8)
    )


def text_buffers(texts: pa.LargeStringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Offsets int64 [n + 1] and bytes uint8 of texts that are no slice of others, sharing their memory."""
    _, offsets, utf8 = texts.buffers()
    if not len(texts):  # Arrow may leave the buffers of nothing away
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[: len(texts) + 1]
    return bounds, np.frombuffer(utf8, np.uint8)[: bounds[-1]]


def _run_bounds(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where runs of consecutive ascending numbers begin, and behind what they end."""
    begins = np.ones(len(numbers), bool)
    np.not_equal(np.diff(numbers), 1, out=begins[1:])
    ends = np.append(begins[1:], True)[: len(numbers)]
    return np.concatenate([numbers[begins], numbers[ends] + 1])


def _contains(ascending: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    places = np.searchsorted(ascending, wanted)
    inside = places < len(ascending)
    inside[inside] = ascending[places[inside]] == wanted[inside]
    return inside


def _add_steps(numbers: NDArray[Any], places: NDArray[np.int64], steps: NDArray[np.int64]) -> None:
    """Add to every number, in place, the steps at its own place and before it."""
    by_place = np.argsort(places, kind="stable")
    bounds = np.append(places[by_place], len(numbers)).tolist()
    heights = np.cumsum(steps[by_place]).tolist()
    for run, height in enumerate(heights):  # run by run: no second array as long as the first
        numbers[bounds[run] : bounds[run + 1]] += height
