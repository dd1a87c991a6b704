"""Many binary searches in lockstep, over codes, ids or texts reached through an index. Knows no catalogue."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Entries: TypeAlias = NDArray[np.integer] | pa.LargeStringArray
# Places int64 [n] -> the entries that stand there.
EntriesAt: TypeAlias = Callable[[NDArray[np.int64]], Entries]


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
