"""What it takes to exclude items from one search: to find them, to see what dies of it, to tell the constraint.

Each round excludes other items, so that none finds its own in the processor's cache. The first round, which is also the
first to look at most of a catalogue that was just opened, is reported apart.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.catalog import Catalog
from item_catalog.filtering.exclusions import dead_set
from recall_service.engine.constraint import TrieConstraint

COUNTS = (1_000, 10_000)
ROUNDS = 15


class _Times(NamedTuple):
    find: float
    dead_set: float
    without: float

    @property
    def total(self) -> float:
        return sum(self)


def measure_exclusions(
    catalog: Catalog, level_tokens: Sequence[NDArray[np.int64]], counts: Sequence[int] = COUNTS
) -> list[dict[str, Any]]:
    """For each number of items, medians of the whole and of its parts, in seconds."""
    constraint = TrieConstraint(catalog.trie, level_tokens)
    chance = np.random.default_rng(0)
    found = []
    for count in counts:
        first, *others = (
            _exclude(catalog, constraint, chance.choice(catalog.num_items, count, replace=False)) for _ in range(ROUNDS)
        )
        found.append(
            {
                "excluded": count,
                "seconds": statistics.median(times.total for times in others),
                "first_seconds": first.total,
                "find_seconds": statistics.median(times.find for times in others),
                "dead_set_seconds": statistics.median(times.dead_set for times in others),
                "without_seconds": statistics.median(times.without for times in others),
            }
        )
    return found


def _exclude(catalog: Catalog, constraint: TrieConstraint, excluded: NDArray[np.int64]) -> _Times:
    item_ids = catalog.item_ids.take(excluded)
    start = time.perf_counter()
    positions = catalog.find(item_ids)
    after_find = time.perf_counter()
    dead = dead_set(catalog, positions)
    after_dead_set = time.perf_counter()
    constraint.without(dead.nodes)
    return _Times(after_find - start, after_dead_set - after_find, time.perf_counter() - after_dead_set)
