"""Which prefixes a pool of pages holds, without pages: prefixes are tuples, and everything is counted afresh."""

from typing import NamedTuple

Prefix = tuple[int, ...]


class Holding(NamedTuple):
    """What one running prompt holds: `shared` prefixes, each a page that others may use too, and pages of its own."""

    shared: list[Prefix]
    own: list[Prefix]


class PrefixModel:
    """A prefix is known from the success of a prefill until the page that ends it is evicted."""

    def __init__(self, num_pages: int, page_len: int) -> None:
        self.num_pages, self.page_len = num_pages, page_len
        self.last_use: dict[Prefix, tuple[int, int]] = {}  # of the known ones: when, and how near to the end
        self.running: list[Holding] = []
        self._now = 0

    @property
    def in_use(self) -> set[Prefix]:
        """Known prefixes that a running prompt uses."""
        return {prefix for holding in self.running for prefix in holding.shared}

    @property
    def num_used(self) -> int:
        """Pages that running prompts take: one for each prefix they share, and their own."""
        return len(self.in_use) + sum(len(holding.own) for holding in self.running)

    @property
    def num_cached(self) -> int:
        """Known prefixes that no running prompt uses."""
        return len(self.last_use.keys() - self.in_use)

    def reusable(self, prompt: Prefix) -> list[Prefix]:
        """Known prefixes of a prompt, shortest first, as far as they follow each other; never the whole prompt."""
        shared: list[Prefix] = []
        for prefix in self._full_prefixes(prompt[:-1]):
            if prefix not in self.last_use:
                break
            shared.append(prefix)
        return shared

    def fits(self, prompt: Prefix) -> bool:
        """Whether there is room for it beside what runs."""
        shared = self.reusable(prompt)
        return self.num_used + len(set(shared) - self.in_use) + self._num_new(prompt, shared) <= self.num_pages

    def reserve(self, prompt: Prefix) -> Holding:
        """Run a prompt that fits. What nobody uses is forgotten, least recently used first, until there is room."""
        shared = self.reusable(prompt)
        ends = [min(end, len(prompt)) for end in range(self.page_len, len(prompt) + self.page_len, self.page_len)]
        holding = Holding(shared, [prompt[:end] for end in ends[len(shared) :]])
        self.running.append(holding)
        while self.num_used + self.num_cached > self.num_pages:
            oldest = min(self.last_use.keys() - self.in_use, key=self.last_use.__getitem__)
            del self.last_use[oldest]
        return holding

    def publish(self, holding: Holding) -> None:
        """Its prefill succeeded: its full pages are known, up to the first that is known already."""
        while holding.own and len(holding.own[0]) % self.page_len == 0 and holding.own[0] not in self.last_use:
            prefix = holding.own.pop(0)
            holding.shared.append(prefix)
            self.last_use[prefix] = (self._now, 0)

    def release(self, holding: Holding) -> None:
        """It ended. What it shared was used now; of that, the end of the prompt is the first to go."""
        self._now += 1
        self.running = [other for other in self.running if other is not holding]
        for prefix in holding.shared:
            self.last_use[prefix] = (self._now, -len(prefix))

    def _full_prefixes(self, prompt: Prefix) -> list[Prefix]:
        return [prompt[:end] for end in range(self.page_len, len(prompt) + 1, self.page_len)]

    def _num_new(self, prompt: Prefix, shared: list[Prefix]) -> int:
        return -(-len(prompt) // self.page_len) - len(shared)
