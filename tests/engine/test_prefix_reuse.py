"""Answers of an engine that reuses the KV of earlier prompts: the same as without, for less work."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.attention import PromptAttention, PromptSpan
from recall_service.engine.engine import BeamEngine
from recall_service.engine.kv_cache import ContextPages, page_bytes
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import DeadlineExpired, EngineFailure, ModelOutputError, RecallError, RequestCancelled
from tests.engine.driving import ask, assert_all_free, assert_bitwise_equal
from tests.engine.test_batching import END_TO_END_BOUND
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue

VOCAB = 32
NAN_TOKEN, RAISING_TOKEN = VOCAB - 1, VOCAB - 2
GONE = "the device is gone"
CATALOGUE = Catalogue.random(np.random.default_rng(3), (5, 5, 5), 60, VOCAB)
TIGHT = EngineLimits(max_rows=24, max_steps=3, context_pages=8, page_len=3, max_prompt_tokens=15)
WITHOUT = EngineLimits(max_rows=24, max_steps=3, context_pages=8, page_len=3, max_prompt_tokens=15, prefix_cache=False)
SHORT_PAGES = EngineLimits(max_rows=64, max_steps=3, context_pages=64, page_len=4, max_prompt_tokens=64)


def path_decoder() -> PathDecoder:
    """Fails on two tokens: one gives NaN, one raises, whenever a prompt ends with it."""
    random_logits = cache(random_path_logits(VOCAB))

    def path_logits(path: tuple[int, ...]) -> Sequence[float]:
        if path[-1] == RAISING_TOKEN:
            raise RuntimeError(GONE)
        return [np.nan] * VOCAB if path[-1] == NAN_TOKEN else random_logits(path)

    return PathDecoder(VOCAB, path_logits)


DECODER = path_decoder()
SAFE_CATALOGUE = Catalogue(CATALOGUE.sids, [np.arange(5) + 5 * level for level in range(3)])


@cache
def answer_without_cache(prompt: tuple[int, ...], width: int) -> BeamResult | RecallError:
    engine = BeamEngine(DECODER, WITHOUT)
    try:
        return engine.search([ask(SAFE_CATALOGUE, prompt, beam_width=width, with_ranks=True)])[0]
    except EngineFailure as error:
        return error


def tokens_at(engine: BeamEngine, places: torch.Tensor) -> list[float]:
    return engine.pages.storage.keys[0, places, 0, 0].tolist()


def assert_pages_hold_what_they_should(engine: BeamEngine) -> None:
    """Prompts that run and prefixes that are known are as they were written; all other places are then poisoned."""
    page_len, keep = engine.pages.page_len, torch.zeros(len(engine.pages.storage.keys[0]), dtype=torch.bool)
    for running in engine._running:
        assert tokens_at(engine, running.places) == running.request.prompt.tolist()
        keep[running.places] = True
    for page, key in engine.prefixes._key_of.items():
        places = engine.pages.places([page], page_len)
        assert tokens_at(engine, places) == np.frombuffer(key.tokens, np.int64).tolist()
        keep[places] = True
    for part in (engine.pages.storage.keys, engine.pages.storage.values):
        part[:, ~keep] = torch.nan


def draw_prompt(data: st.DataObject, earlier: list[tuple[int, ...]]) -> tuple[int, ...]:
    """An unrelated prompt, an earlier one, or the beginning of an earlier one with another end."""
    new = tuple(data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=7), label="new tokens"))
    beginning = data.draw(st.sampled_from(earlier), label="beginning") if earlier else ()
    kept = data.draw(st.sampled_from([0, len(beginning), len(beginning) // 2]), label="kept")
    return (*beginning[:kept], *new)[: TIGHT.max_prompt_tokens] or (1,)


@settings(derandomize=True, max_examples=40)
@given(data=st.data())
def test_every_bit_is_the_same_in_a_tight_pool_of_shared_pages(data: st.DataObject) -> None:
    """P18, P19, P20: the logits tell the tokens that were read, so one wrong or overwritten page shows."""
    engine, prompts = BeamEngine(DECODER, TIGHT), [(2, 4, 6, 8, 10, 12, 14)]
    asked: dict[int, tuple[tuple[int, ...], int]] = {}
    outcomes: dict[int, BeamResult | RecallError] = {}
    for _ in range(data.draw(st.integers(1, 12), label="rounds")):
        for _ in range(data.draw(st.integers(0, 3), label="arrivals")):
            prompts.append(draw_prompt(data, prompts))
            width = data.draw(st.sampled_from([1, 3, 8]), label="width")
            deadline = 0.0 if data.draw(st.integers(0, 9), label="late") == 0 else None
            request = ask(SAFE_CATALOGUE, prompts[-1], beam_width=width, with_ranks=True, deadline=deadline)
            asked[engine.submit(request)] = (prompts[-1], width)
        if asked and data.draw(st.integers(0, 4), label="cancel") == 0:
            engine.cancel(data.draw(st.sampled_from(sorted(asked)), label="which"))
        outcomes.update(engine.step())
        assert_pages_hold_what_they_should(engine)
    while not engine.is_idle:
        outcomes.update(engine.step())
        assert_pages_hold_what_they_should(engine)
    assert outcomes.keys() == asked.keys()
    for request_id, outcome in outcomes.items():
        prompt, width = asked[request_id]
        if isinstance(outcome, BeamResult):
            assert_bitwise_equal(outcome, answer_without_cache(prompt, width))
        elif isinstance(outcome, ModelOutputError):
            assert prompt[-1] == NAN_TOKEN
        elif isinstance(outcome, EngineFailure):  # its own, or that of a prompt in the same step
            assert str(outcome.__cause__) == GONE
        else:
            assert isinstance(outcome, RequestCancelled | DeadlineExpired)
    assert_all_free(engine)


@settings(derandomize=True, max_examples=15)
@given(data=st.data())
def test_end_to_end_answers_stay_within_the_stated_bound(tiny_decoder: Decoder, data: st.DataObject) -> None:
    """Growing histories, one after another and together: the same items, unless two scores are nearer than that."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6), label="seed"))
    engine = BeamEngine(tiny_decoder, SHORT_PAGES)
    histories = [rng.integers(0, 64, 5).tolist() for _ in range(2)]
    for _ in range(5):
        for history in histories:
            history += rng.integers(0, 64, rng.integers(1, 9)).tolist()
        requests = [ask(CATALOGUE, history, beam_width=int(rng.choice([4, 20]))) for history in histories]
        for request, cached in zip(requests, engine.search(requests), strict=True):
            without = BeamEngine(tiny_decoder, EngineLimits(max_rows=64, max_steps=3, page_len=4, prefix_cache=False))
            (plain,) = without.search([request])
            assert plain.cached_prompt_tokens == 0
            assert_same_items(cached, plain)
    assert cached.cached_prompt_tokens > 0


def assert_same_items(left: BeamResult, right: BeamResult) -> None:
    scores = dict(zip(map(tuple, right.tokens.tolist()), right.scores, strict=True))
    for path, score in zip(map(tuple, left.tokens.tolist()), left.scores, strict=True):
        assert path in scores or abs(score - left.bound) < END_TO_END_BOUND
        assert abs(score - scores.get(path, score)) < END_TO_END_BOUND
    np.testing.assert_allclose(left.scores, right.scores, atol=END_TO_END_BOUND, rtol=0)


@pytest.mark.parametrize("prefix_len", [1, 4, 63, 64, 129])
def test_a_prompt_in_two_parts_has_the_hidden_states_of_one_run(tiny_decoder: Decoder, prefix_len: int) -> None:
    """Around the edges of whatever blocks the attention works in."""
    prompt = torch.from_numpy(np.random.default_rng(prefix_len).integers(0, 64, 140))
    pages = ContextPages(tiny_decoder.config, 2, 140, tiny_decoder.dtype, tiny_decoder.device)
    whole, parts = (pages.places(pages.allocate(140), 140) for _ in range(2))

    def run(first: int, last: int, places: torch.Tensor, prefix_len: int = 0) -> torch.Tensor:
        span = PromptSpan(slice(0, last - first), places, prefix_len)
        attention = PromptAttention(pages.storage, [span])
        return tiny_decoder.hidden(prompt[first:last], torch.arange(first, last), attention)

    with torch.inference_mode():
        expected = run(0, 140, whole)
        run(0, prefix_len, parts[:prefix_len])
        rest = run(prefix_len, 140, parts, prefix_len)
    torch.testing.assert_close(rest[-1], expected[-1], atol=2e-5, rtol=1e-5)
    for kv in (pages.storage.keys, pages.storage.values):
        torch.testing.assert_close(kv[:, parts], kv[:, whole], atol=2e-5, rtol=1e-5)


def test_a_history_that_grew_is_run_from_its_last_full_page_on() -> None:
    engine, counts = BeamEngine(path_decoder(), SHORT_PAGES), []
    original = engine.model.hidden

    def counting(tokens: torch.Tensor, *others: object) -> torch.Tensor:
        counts.append(len(tokens))
        return original(tokens, *others)

    engine.model.hidden = counting
    history = list(range(14))
    found = []
    for prompt in (history, [*history, 20, 21], [*history, 20, 21]):
        counts.clear()
        found += [engine.search([ask(SAFE_CATALOGUE, prompt)])[0].cached_prompt_tokens]
        assert counts[0] == len(prompt) - found[-1]
    assert found == [0, 12, 12]  # 16 tokens are 4 full pages, and the last token is run all the same


@pytest.mark.parametrize("bad", [NAN_TOKEN, RAISING_TOKEN], ids=["nan", "exception"])
def test_what_a_failed_prefill_wrote_is_never_found(bad: int) -> None:
    engine = BeamEngine(path_decoder(), SHORT_PAGES)
    with pytest.raises(EngineFailure):
        engine.search([ask(SAFE_CATALOGUE, [1, 2, 3, 4, 5, 6, 7, bad])])
    assert engine.prefixes.num_cached == 0
    (result,) = engine.search([ask(SAFE_CATALOGUE, [1, 2, 3, 4, 5, 6, 7, 8])])
    assert result.cached_prompt_tokens == 0
    assert engine.prefixes.num_cached == 2


def test_a_request_that_is_cancelled_before_its_prefill_leaves_nothing() -> None:
    engine = BeamEngine(path_decoder(), SHORT_PAGES)
    engine.cancel(engine.submit(ask(SAFE_CATALOGUE, range(1, 9))))
    engine.step()
    assert engine.prefixes.num_cached == 0
    assert_all_free(engine)


def test_switched_off_nothing_is_kept() -> None:
    engine = BeamEngine(path_decoder(), WITHOUT)
    request = ask(SAFE_CATALOGUE, range(10))
    results = engine.search([request]) + engine.search([request])
    assert [result.cached_prompt_tokens for result in results] == [0, 0]
    assert engine.pages.num_free == WITHOUT.context_pages


def test_a_byte_budget_is_room_for_whole_pages_more() -> None:
    decoder = path_decoder()
    page = page_bytes(decoder.config, 4, decoder.dtype)
    limits = {"context_pages": 5, "page_len": 4, "prefix_cache_bytes": 3 * page - 1}
    assert BeamEngine(decoder, EngineLimits(**limits)).pages.num_pages == 5 + 2
    assert BeamEngine(decoder, EngineLimits(**limits, prefix_cache=False)).pages.num_pages == 5


def test_as_many_run_at_once_as_pages_reach_when_they_share_them() -> None:
    """Six prompts of 5 pages share 4 of them, and fit into 10 pages together."""
    limits = EngineLimits(max_rows=64, max_steps=3, context_pages=10, page_len=3, max_prompt_tokens=15)
    engine = BeamEngine(path_decoder(), limits)
    engine.search([ask(SAFE_CATALOGUE, range(13))])
    requests: list[BeamRequest] = [ask(SAFE_CATALOGUE, [*range(12), user]) for user in range(6)]
    for request in requests:
        engine.submit(request)
    engine.step()
    assert (engine.num_running, engine.prefixes.num_used) == (6, 10)
