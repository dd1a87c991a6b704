"""A request's answer does not depend on its company: who else runs, where it sits, who comes and goes."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.engine.scheduler import EngineLimits
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free, assert_bitwise_equal, drain
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue

VOCAB = 32
LIMITS = EngineLimits(max_rows=2048, max_steps=5, context_pages=512, page_len=4, max_prompt_tokens=64)
END_TO_END_BOUND = 2e-5  # of a whole score, for fp32 matrix products of other shapes; 6e-6 was seen


@cache
def catalogue(levels: int) -> Catalogue:
    """One for each number of levels, so that companions end at different steps."""
    return Catalogue.random(np.random.default_rng(levels), (7,) * levels, 150, VOCAB)


def random_request(rng: np.random.Generator, vocab_size: int = VOCAB) -> BeamRequest:
    """Any width, catalogue, prompt length and score space."""
    return ask(
        catalogue(int(rng.integers(1, 6))),
        rng.integers(0, vocab_size, rng.integers(1, 20)).tolist(),
        beam_width=int(rng.choice([1, 2, 3, 8, 31, 33, 64])),
        score_space=SPACES[rng.integers(3)],
        with_ranks=bool(rng.integers(2)),
    )


@settings(derandomize=True, max_examples=25)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 8))
def test_for_equal_logits_every_bit_is_the_same_in_any_company(seed: int, count: int) -> None:
    """P14, lesson 9: companions of other widths, catalogues and lengths join late and are cancelled at any step."""
    rng = np.random.default_rng(seed)
    decoder = PathDecoder(VOCAB, cache(random_path_logits(VOCAB)))
    requests = [random_request(rng) for _ in range(count)]
    alone = [BeamEngine(decoder, SMALL).search([request])[0] for request in requests]
    engine, arrivals = BeamEngine(decoder, SMALL), np.sort(rng.integers(0, 5, count))
    doomed = set(rng.integers(0, count, count // 3).tolist())
    ids: list[int] = []
    outcomes = {}
    for step in range(5):
        ids += [engine.submit(requests[index]) for index in range(len(ids), int((arrivals <= step).sum()))]
        for index in sorted(doomed):
            if index < len(ids) and rng.integers(2):
                engine.cancel(ids[index])
        outcomes.update(engine.step())
    outcomes.update(drain(engine))
    survived = [index for index in range(count) if isinstance(outcomes[ids[index]], BeamResult)]
    assert set(range(count)) - doomed <= set(survived)
    for index in survived:
        assert_bitwise_equal(outcomes[ids[index]], alone[index])
    assert_all_free(engine)


def test_the_same_prompt_at_several_widths_in_one_batch() -> None:
    """P16."""
    decoder = PathDecoder(VOCAB, random_path_logits(VOCAB))
    requests = [ask(catalogue(3), [4, 4], beam_width=width) for width in (1, 5, 33, 5, 100)]
    together = BeamEngine(decoder, SMALL).search(requests)
    for request, result in zip(requests, together, strict=True):
        assert_bitwise_equal(result, BeamEngine(decoder, SMALL).search([request])[0])


@pytest.mark.parametrize("batch_size", [2, 7, 32])
def test_end_to_end_scores_move_less_than_the_stated_bound(tiny_decoder: Decoder, batch_size: int) -> None:
    """P14: the same items, unless two scores are nearer than the bound."""
    rng = np.random.default_rng(batch_size)
    requests = [random_request(rng, 64) for _ in range(batch_size)]
    together = BeamEngine(tiny_decoder, LIMITS).search(requests)
    greatest = 0.0
    for request, batched in zip(requests, together, strict=True):
        (alone,) = BeamEngine(tiny_decoder, LIMITS).search([request])
        scores = dict(zip(map(tuple, alone.tokens.tolist()), alone.scores, strict=True))
        for path, score in zip(map(tuple, batched.tokens.tolist()), batched.scores, strict=True):
            near_the_edge = abs(score - batched.bound) < END_TO_END_BOUND
            assert path in scores or near_the_edge
            greatest = max(greatest, abs(score - scores.get(path, score)))
        assert len(batched.scores) == len(alone.scores)
        np.testing.assert_allclose(batched.scores, alone.scores, atol=END_TO_END_BOUND, rtol=0)
    assert greatest <= END_TO_END_BOUND
