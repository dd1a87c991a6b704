"""Pages shared by prefix, against a model that knows prefixes and no pages."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recall_service.engine import prefix_cache
from recall_service.engine.kv_cache import ContextPages, page_bytes
from recall_service.engine.prefix_cache import PrefixCache, PromptPages
from tests.oracles.path_decoder import path_config
from tests.oracles.prefix_model import Holding, PrefixModel

WHERE = (torch.float32, torch.device("cpu"))
PAGE_LEN = 2
PROMPTS = st.tuples(  # of pages that many have in common, and a rest
    st.lists(st.sampled_from([(0, 0), (0, 1)]), max_size=3), st.lists(st.integers(0, 1), min_size=1, max_size=PAGE_LEN)
).map(lambda parts: [*sum(parts[0], ()), *parts[1]])


def make_cache(num_pages: int) -> PrefixCache:
    return PrefixCache(ContextPages(path_config(8), num_pages, PAGE_LEN, *WHERE))


def tokens(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def run(cache: PrefixCache, *values: int) -> PromptPages:
    """One prompt, from admission to its end."""
    context = cache.reserve(tokens(*values))
    cache.publish(tokens(*values), context.pages)
    cache.release(context.pages)
    return context


@settings(derandomize=True, max_examples=200)
@given(data=st.data())
def test_pages_are_counted_shared_and_evicted_as_the_model_says(data: st.DataObject) -> None:
    """Prompts that often meet: reserved, published or not, and released, in any order."""
    num_pages = data.draw(st.integers(3, 9), label="pages")
    cache, model = make_cache(num_pages), PrefixModel(num_pages, PAGE_LEN)
    running: list[tuple[tuple[int, ...], PromptPages, Holding, bool]] = []
    content: dict[int, tuple[int, ...]] = {}  # page -> the prefix that ends with it, as it was last written
    for _ in range(data.draw(st.integers(1, 30), label="operations")):
        action = data.draw(st.sampled_from(["reserve", "reserve", "publish", "release"]), label="action")
        if action == "reserve":
            prompt = tuple(data.draw(PROMPTS, label="prompt"))
            assert cache.fits(tokens(*prompt)) == model.fits(prompt)
            if not model.fits(prompt):
                continue
            context, holding = cache.reserve(tokens(*prompt)), model.reserve(prompt)
            assert context.num_cached_tokens == len(holding.shared) * PAGE_LEN
            num_shared = len(holding.shared)
            assert [content[page] for page in context.pages[:num_shared]] == holding.shared
            held = {page for _, other, _, _ in running for page in other.pages}
            assert not held & set(context.pages[num_shared:])  # nobody's page is written again
            content.update(zip(context.pages[num_shared:], holding.own, strict=True))
            running.append((prompt, context, holding, False))
        elif running:
            index = data.draw(st.integers(0, len(running) - 1), label="which")
            prompt, context, holding, is_published = running.pop(index)
            if action == "release":
                cache.release(context.pages)
                model.release(holding)
            else:
                if not is_published:
                    cache.publish(tokens(*prompt), context.pages)
                    model.publish(holding)
                running.insert(index, (prompt, context, holding, True))
        assert (cache.num_used, cache.num_cached) == (model.num_used, model.num_cached)
        assert cache.num_used + cache.num_cached + cache._pool.num_free == num_pages
        known = {prefix for prefix in model.last_use if prefix in model.reusable((*prefix, 0))}
        assert known == set(model.last_use)  # no prefix outlives the one before it, so every known page can be found
    for _, context, holding, _ in running:
        cache.release(context.pages)
        model.release(holding)
    assert (cache.num_used, cache.num_cached) == (0, model.num_cached)


def test_nothing_is_found_before_it_is_published() -> None:
    cache = make_cache(6)
    failed = cache.reserve(tokens(1, 2, 3, 4, 5))
    assert cache.reserve(tokens(1, 2, 3, 4, 5)).num_cached_tokens == 0
    cache.release(failed.pages)
    assert cache.num_cached == 0


def test_of_equal_pages_filled_in_one_step_one_is_shared_and_the_other_forgotten() -> None:
    """What follows the forgotten one is forgotten with it: its number will soon stand for another prefix."""
    cache = make_cache(8)
    short, long = cache.reserve(tokens(1, 2, 0)), cache.reserve(tokens(1, 2, 3, 4, 0))
    cache.publish(tokens(1, 2, 0), short.pages)
    cache.publish(tokens(1, 2, 3, 4, 0), long.pages)
    cache.release(long.pages)
    cache.release(short.pages)
    assert cache.num_cached == 1
    assert cache.reserve(tokens(1, 2, 3, 4, 0)).pages[0] == short.pages[0]


def test_a_prompt_that_is_cached_whole_still_has_a_last_page_to_write() -> None:
    cache = make_cache(8)
    run(cache, 1, 2, 3, 4)
    again = cache.reserve(tokens(1, 2, 3, 4))
    assert again.num_cached_tokens == 2
    longer = cache.reserve(tokens(1, 2, 3, 4, 5))
    assert longer.num_cached_tokens == 4
    assert again.pages[0] == longer.pages[0]
    assert again.pages[1] not in longer.pages


def test_the_same_tokens_after_another_beginning_are_another_prefix() -> None:
    cache = make_cache(8)
    run(cache, 1, 2, 7, 7, 0)
    assert run(cache, 3, 4, 7, 7, 0).num_cached_tokens == 0
    assert run(cache, 7, 7, 0).num_cached_tokens == 0
    assert run(cache, 1, 2, 7, 7, 0).num_cached_tokens == 4


def test_tokens_are_compared_and_not_only_their_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key has the same hash here: a page is found by what it holds."""

    class Colliding(prefix_cache.PageKey):
        __slots__ = ()

        def __hash__(self) -> int:
            return 0

    monkeypatch.setattr(prefix_cache, "PageKey", Colliding)
    cache = make_cache(8)
    run(cache, 1, 2, 3, 4, 5)
    assert run(cache, 1, 2, 4, 3, 5).num_cached_tokens == 2
    assert run(cache, 2, 1, 3, 4, 5).num_cached_tokens == 0
    assert run(cache, 1, 2, 3, 4, 5).num_cached_tokens == 4


def test_what_every_prompt_begins_with_outlives_any_number_of_prompts() -> None:
    """An instruction prefix of two pages, in a pool where everything else is evicted again and again."""
    cache = make_cache(5)
    run(cache, 1, 2, 3, 4, 0)
    for user in range(10, 40):
        assert run(cache, 1, 2, 3, 4, user, user, user).num_cached_tokens == 4


def test_the_prompt_that_was_used_longest_ago_is_evicted_from_its_end() -> None:
    cache = make_cache(6)
    run(cache, 1, 1, 2, 2, 0)
    run(cache, 3, 3, 4, 4, 0)
    run(cache, 5, 5, 6, 6, 0)  # needs one page more than are free: the second of the oldest prompt
    assert cache.num_cached == 5
    assert run(cache, 3, 3, 4, 4, 0).num_cached_tokens == 4
    assert run(cache, 1, 1, 2, 2, 0).num_cached_tokens == 2


def test_a_page_cannot_be_given_back_twice() -> None:
    cache = make_cache(4)
    context = run(cache, 1, 2, 3, 4)
    with pytest.raises(AssertionError, match="once"):
        cache.release(context.pages)


def test_a_page_is_as_large_as_its_share_of_the_storage() -> None:
    config = path_config(8)
    storage = ContextPages(config, 3, 5, *WHERE).storage
    assert 3 * page_bytes(config, 5, torch.float32) == storage.keys.nbytes + storage.values.nbytes
