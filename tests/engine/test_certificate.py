"""What the certificate promises, held against every item of the catalogue scored on its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import ScoreSpace
from tests.engine.driving import SMALL, SPACES, ask
from tests.oracles.compare import certificate_faults
from tests.oracles.exhaustive import score_every_item
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.recompute_beam import recompute_beam
from tests.oracles.tries import Catalogue

VOCAB, PROMPT = 48, (1, 2, 3)


@settings(derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 60), space=st.sampled_from(SPACES))
def test_the_proven_answers_are_the_true_top_and_the_bound_bounds_all_that_was_lost(
    seed: int, width: int, space: ScoreSpace
) -> None:
    catalogue = Catalogue.random(np.random.default_rng(seed), (7, 8, 7), 120, VOCAB)
    path_logits = random_path_logits(VOCAB, seed)
    unpruned = recompute_beam(
        lambda prefixes: [path_logits(PROMPT + prefix) for prefix in prefixes],
        catalogue.children,
        3,
        10**6,
        space,
        catalogue.level_tokens,
    )
    engine = BeamEngine(PathDecoder(VOCAB, path_logits), SMALL)
    (result,) = engine.search([ask(catalogue, PROMPT, beam_width=width, score_space=space)])
    assert certificate_faults(result, unpruned.beams) == []
    if width >= catalogue.widest:
        assert (result.bound, result.proven_count) == (-np.inf, len(catalogue.sids))


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
@pytest.mark.parametrize("width", [1, 4, 16, 64, 400])
def test_a_real_models_certificate_holds_over_the_whole_catalogue(
    tiny_model, tiny_decoder: Decoder, width: int, space: ScoreSpace
) -> None:
    """O1 by transformers: the beam is exact wherever it says it is."""
    catalogue = Catalogue.random(np.random.default_rng(width), (9, 9, 9), 200, 64)
    truth = score_every_item(tiny_model, PROMPT, catalogue, space)
    (result,) = BeamEngine(tiny_decoder, SMALL).search([ask(catalogue, beam_width=width, score_space=space)])
    assert certificate_faults(result, truth) == []
    if width >= catalogue.widest:
        assert (result.bound, result.proven_count) == (-np.inf, len(catalogue.sids))


def test_nothing_is_proven_beyond_a_tie_with_what_was_pruned() -> None:
    """A pruned candidate as good as a kept one may be as good an item."""
    catalogue = Catalogue({(code,) for code in range(8)}, [np.arange(8)])
    logits = [5.0, 3.0, 3.0, 3.0, 1.0, 1.0, 0.0, 0.0]
    engine = BeamEngine(PathDecoder(8, lambda path: logits), SMALL)
    counts = [engine.search([ask(catalogue, beam_width=width)])[0].proven_count for width in range(1, 10)]
    assert counts == [1, 1, 1, 4, 4, 6, 6, 8, 8]
