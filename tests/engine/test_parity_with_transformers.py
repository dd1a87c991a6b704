"""Our decoder and our search against transformers' own, in fp32, for every family and variant that is supported."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.scheduler import EngineLimits
from tests.engine.driving import SMALL, ask
from tests.make_checkpoint import FAMILY_CHANGES, make_model, write_checkpoint
from tests.oracles.compare import PER_TOKEN
from tests.oracles.generate import generate_beams
from tests.oracles.recompute_beam import Beam
from tests.oracles.teacher_forcing import next_token_logits
from tests.oracles.tries import Catalogue

LONG_PROMPTS = EngineLimits(max_rows=64, max_steps=5, context_pages=8)


@pytest.fixture(scope="module", params=FAMILY_CHANGES, ids=list(FAMILY_CHANGES))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[PreTrainedModel, Decoder]:
    """One model twice: as transformers holds it, and as the engine loads it."""
    model = make_model(**FAMILY_CHANGES[request.param])
    return model, load_decoder(write_checkpoint(model, tmp_path_factory.mktemp(request.param)))


def prompt_of(length: int) -> list[int]:
    return np.random.default_rng(length).integers(0, 64, length).tolist()


def assert_same_beams(result, expected: list[Beam]) -> None:
    """As a set, in order, and in score within 1e-5 a token."""
    assert [tuple(path) for path in result.tokens.tolist()] == [beam.path for beam in expected]
    scores = [beam.score for beam in expected]
    np.testing.assert_allclose(result.scores, scores, atol=PER_TOKEN * result.tokens.shape[1], rtol=0)


@pytest.mark.parametrize(
    ("prompt_len", "width", "num_steps"), [(1, 2, 5), (5, 64, 2), (33, 16, 3), (60, 7, 4), (9, 32, 1)]
)
def test_free_search_equals_generate(pair, prompt_len: int, width: int, num_steps: int) -> None:
    """P3, lesson 10: the prompt's length has no part in a score."""
    model, decoder = pair
    prompt = prompt_of(prompt_len)
    (result,) = BeamEngine(decoder, SMALL).search([ask(None, prompt, beam_width=width, num_steps=num_steps)])
    assert_same_beams(result, generate_beams(model, prompt, num_steps, width))


@pytest.mark.parametrize(("prompt_len", "width"), [(4, 3), (40, 8)])
def test_constrained_search_equals_generate_with_allowed_tokens(pair, prompt_len: int, width: int) -> None:
    """P3: as long as there are as many legal prefixes as beams."""
    model, decoder = pair
    prompt, catalogue = prompt_of(prompt_len), Catalogue.random(np.random.default_rng(width), (9, 9, 9), 100, 64)
    assert min(catalogue.num_prefixes(depth) for depth in (1, 2, 3)) >= width
    (result,) = BeamEngine(decoder, SMALL).search([ask(catalogue, prompt, beam_width=width)])
    assert_same_beams(result, generate_beams(model, prompt, 3, width, catalogue))


def test_positions_far_into_the_context_are_rotated_the_same(pair) -> None:
    """Scaled rotary embeddings differ most far out."""
    model, decoder = pair
    prompt = prompt_of(250)
    (result,) = BeamEngine(decoder, LONG_PROMPTS).search([ask(None, prompt, beam_width=64, num_steps=1)])
    (row,) = next_token_logits(model, prompt)([()])
    expected = torch.tensor(row).log_softmax(0)[torch.from_numpy(result.tokens[:, 0])]
    np.testing.assert_allclose(result.scores, expected, atol=PER_TOKEN, rtol=0)


def test_many_width_and_length_pairs_of_one_model(tiny_model: PreTrainedModel, tiny_decoder: Decoder) -> None:
    """P3: W from 2 to 64, 1 to 5 tokens."""
    for width, num_steps in [(2, 1), (3, 2), (8, 5), (9, 4), (31, 3), (33, 2), (63, 2), (64, 3)]:
        prompt = prompt_of(3 + width)
        request = ask(None, prompt, beam_width=width, num_steps=num_steps)
        (result,) = BeamEngine(tiny_decoder, LONG_PROMPTS).search([request])
        assert_same_beams(result, generate_beams(tiny_model, prompt, num_steps, width))
