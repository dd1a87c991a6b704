"""Many binary searches in lockstep, so that many cost as many numpy calls as one. Knows no catalogue."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Entries: TypeAlias = NDArray[np.integer] | pa.LargeStringArray
# Places int64 [n] -> the entries that stand there.
EntriesAt: TypeAlias = Callable[[NDArray[np.int64]], Entries]


def count_below(
    num_entries: int, num_wanted: int, are_below: Callable[[NDArray[np.int64]], NDArray[np.bool_]]
) -> NDArray[np.int64]:
    """For each wanted thing, how many of the `num_entries` >= 1 sorted ones are below it: int64 [num_wanted].

    are_below: one place for each, int64 [num_wanted] -> whether the entry there is below the wanted one.
    """
    counts = np.zeros(num_wanted, np.int64)
    num_left = num_entries
    while num_left > 1:
        half = num_left // 2
        counts += half * are_below(counts + (half - 1))
        num_left -= half
    return counts + are_below(counts)


def owners_of(offsets: NDArray[np.integer], things: NDArray[np.int64]) -> NDArray[np.int64]:
    """Things int64 [n], each below offsets[-1] -> whose they are: owner i has offsets[i] to offsets[i + 1] - 1.

    A thousand searches wait for memory together, where `searchsorted` waits for one after another; 0.2 ms against 0.5
    among ten million.
    """
    ends = offsets[1:]
    return count_below(len(ends), len(things), lambda owners: ends.take(owners) <= things)


def lower_bounds(
    entries_at: EntriesAt, wanted: Entries, firsts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each wanted entry [n], the first place in firsts..ends-1 whose entry is no less; `ends` if there is none.

    The entries of each range ascend.
    """
    while (is_open := firsts < ends).any():
        middles = np.where(is_open, (firsts + ends) // 2, 0)
        is_above = _less(entries_at(middles), wanted)
        firsts = np.where(is_open & is_above, middles + 1, firsts)
        ends = np.where(is_open & ~is_above, middles, ends)
    return firsts


def _less(one: Entries, other: Entries) -> NDArray[np.bool_]:
    if isinstance(one, np.ndarray):
        return one < other
    return pc.less(one, other).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
