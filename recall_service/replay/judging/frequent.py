"""The items seen most often in a stream, in bounded memory."""

from collections import Counter
from collections.abc import Iterable


class FrequentItems:
    """Counts items, keeping about `capacity` of them.

    Counts are exact until more than twice as many different items came; from then on each is too low by at most
    `error`, which is no more than all that was counted / capacity (Misra and Gries, 1982; pruned in batches as in
    Agarwal et al., Mergeable Summaries, 2012).
    """

    def __init__(self, capacity: int = 10_000) -> None:
        self.error = 0
        self._capacity = capacity
        self._counts: Counter[str] = Counter()

    def add(self, items: Iterable[str]) -> None:
        """Count each of the items once more."""
        self._counts.update(items)
        if len(self._counts) > 2 * self._capacity:
            self._prune()

    def most_common(self, number: int) -> list[tuple[str, int]]:
        """The items counted most often, most often first, then by name."""
        return sorted(self._counts.items(), key=lambda entry: (-entry[1], entry[0]))[:number]

    def __getitem__(self, item: str) -> int:
        return self._counts[item]

    def _prune(self) -> None:
        cut = sorted(self._counts.values(), reverse=True)[self._capacity]
        self._counts = Counter({item: count - cut for item, count in self._counts.items() if count > cut})
        self.error += cut
