"""Which context pages hold which prompt prefix, who uses them, and which one is evicted next.

Pages are shared whole or not at all, so a shared page is never written again. A page is known by the page before it and
by its own tokens, all of them: a dictionary compares keys in full, so no collision of hashes can serve another
prefix. Pages stay after the request that filled them, until a prompt needs the room.

One rule keeps this simple: whoever uses a known page uses the whole prefix before it. So a page is never evicted before
those that follow it, and its number can stand for its prefix.

Knows no model and no request: prompts and page numbers alone.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_service.engine.kv_cache import ContextPages

_ROOT = -1  # stands before the first page of a prompt


class PageKey(NamedTuple):
    """What a page holds: the bytes of its own tokens, after the prefix that ends with page `before`."""

    before: int
    tokens: bytes


class PromptPages(NamedTuple):
    """The pages of one prompt, in order. The KV of its first `num_cached_tokens` tokens is in them already."""

    pages: list[int]
    num_cached_tokens: int


class PrefixCache:
    """Lends pages to prompts and keeps the full ones findable. It is the only one who takes pages from the pool."""

    def __init__(self, pool: ContextPages) -> None:
        self._pool = pool
        self._page_of: dict[PageKey, int] = {}
        self._key_of: dict[int, PageKey] = {}  # the same, the other way round
        self._num_users = [0] * pool.num_pages
        self._unused: dict[int, None] = {}  # known pages without a user, the least recently used first

    @property
    def num_used(self) -> int:
        """Pages of running requests."""
        return self._pool.num_pages - self._pool.num_free - len(self._unused)

    @property
    def num_cached(self) -> int:
        """Pages that nobody uses now, kept for whoever comes with the same prefix."""
        return len(self._unused)

    def fits(self, prompt: NDArray[np.int64]) -> bool:
        """Whether `reserve` can have all the pages it needs. Pages that nobody uses count as available."""
        shared = self._find(prompt)
        num_available = self._pool.num_free + len(self._unused) - sum(page in self._unused for page in shared)
        return self._pool.pages_for(len(prompt)) - len(shared) <= num_available

    def reserve(self, prompt: NDArray[np.int64]) -> PromptPages:
        """The pages of a prompt that `fits`: those known to hold its beginning, and new ones for the rest.

        The caller gives them back with `release`.
        """
        shared = self._find(prompt)
        for page in shared:
            self._unused.pop(page, None)
        num_cached_tokens = len(shared) * self._pool.page_len
        num_new_tokens = len(prompt) - num_cached_tokens
        while self._pool.num_free < self._pool.pages_for(num_new_tokens):
            self._evict()
        pages = [*shared, *self._pool.allocate(num_new_tokens)]
        for page in pages:
            self._num_users[page] += 1
        return PromptPages(pages, num_cached_tokens)

    def publish(self, prompt: NDArray[np.int64], pages: list[int]) -> None:
        """Make the full pages of a prompt findable. Only for a prompt whose prefill succeeded.

        Where another page is known for the same prefix already, filled in the same step perhaps, that one stays known.
        This prompt's pages from there on are its own alone, so that whoever uses a known page uses those before it.
        """
        before = _ROOT
        for page, tokens in zip(pages, self._full_pages(prompt), strict=False):  # the last page may be no full one
            key = PageKey(before, tokens)
            if self._page_of.setdefault(key, page) != page:
                return
            self._key_of[page] = key
            before = page

    def release(self, pages: list[int]) -> None:
        """Give back the pages of one prompt. Known ones are kept, as the latest used, the first page above all."""
        for page in reversed(pages):
            self._num_users[page] -= 1
            assert self._num_users[page] >= 0, "a page is given back once"
            if not self._num_users[page]:
                if page in self._key_of:
                    self._unused[page] = None
                else:
                    self._pool.release([page])

    def _find(self, prompt: NDArray[np.int64]) -> list[int]:
        """Known pages that hold the beginning of a prompt, never all of it.

        The logits of the last token are needed, so it is always forwarded, and its KV written: into a page of its own.
        """
        pages: list[int] = []
        before = _ROOT
        for tokens in self._full_pages(prompt[:-1]):
            page = self._page_of.get(PageKey(before, tokens))
            if page is None:
                break
            pages.append(page)
            before = page
        return pages

    def _full_pages(self, prompt: NDArray[np.int64]) -> list[bytes]:
        """The tokens of each page that a prompt fills."""
        length = self._pool.page_len
        return [prompt[end - length : end].tobytes() for end in range(length, len(prompt) + 1, length)]

    def _evict(self) -> None:
        page = next(iter(self._unused))
        del self._unused[page]
        del self._page_of[self._key_of.pop(page)]
        self._pool.release([page])
