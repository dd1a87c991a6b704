"""No more logits than the score space needs: the same answers from fewer columns of the head."""

import numpy as np
import pytest
from torch import Tensor

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, ScoreSpace
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free, assert_bitwise_equal
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue

VOCAB = 60
RANGES = ((10, 25), (25, 40), (5, 20))  # the token ids of each level's codebook; levels may overlap


def make_catalogue(seed: int = 3) -> Catalogue:
    rng = np.random.default_rng(seed)
    sids = {tuple(map(int, sid)) for sid in rng.integers(0, 9, (120, 3))}
    return Catalogue(sids, [np.sort(rng.permutation(np.arange(*span))[:9]) for span in RANGES])


class CountingDecoder(PathDecoder):
    """Remembers how many columns were asked for."""

    def __init__(self) -> None:
        super().__init__(VOCAB, random_path_logits(VOCAB))
        self.widths: list[int] = []

    def logits(self, hidden: Tensor, first_token: int = 0, end_token: int | None = None) -> Tensor:
        logits = super().logits(hidden, first_token, end_token)
        self.widths.append(logits.shape[1])
        return logits


@pytest.mark.parametrize("space", SPACES)
def test_answers_do_not_depend_on_it(space: ScoreSpace) -> None:
    request = ask(make_catalogue(), beam_width=20, score_space=space, with_ranks=True)
    (whole,) = BeamEngine(CountingDecoder(), SMALL, slice_head=False).search([request])
    (sliced,) = BeamEngine(CountingDecoder(), SMALL).search([request])
    assert_bitwise_equal(sliced, whole)


@pytest.mark.parametrize(
    ("space", "greatest"), [(ScoreSpace.VOCABULARY, VOCAB), (ScoreSpace.CODEBOOK, 15), (ScoreSpace.CATALOG, 15)]
)
def test_no_more_columns_than_the_space_needs(space: ScoreSpace, greatest: int) -> None:
    decoder = CountingDecoder()
    BeamEngine(decoder, SMALL).search([ask(make_catalogue(), beam_width=20, score_space=space)])
    assert len(decoder.widths) >= 3
    assert max(decoder.widths) <= greatest
    switched_off = CountingDecoder()
    BeamEngine(switched_off, SMALL, slice_head=False).search([ask(make_catalogue(), beam_width=20, score_space=space)])
    assert set(switched_off.widths) == {VOCAB}


def test_requests_that_need_other_tokens_share_a_step() -> None:
    """Every space, two catalogues, several depths at once: each as alone."""
    requests: list[BeamRequest] = [
        ask(make_catalogue(seed), prompt, beam_width=width, score_space=space, with_ranks=True)
        for space in SPACES
        for seed, prompt, width in ((3, [1, 2], 20), (4, [3], 7))
    ]
    alone = [BeamEngine(CountingDecoder(), SMALL).search([request])[0] for request in requests]
    engine = BeamEngine(CountingDecoder(), SMALL)
    ids, outcomes = [], {}
    for request in requests:  # one joins before every step
        ids.append(engine.submit(request))
        outcomes.update(engine.step())
    while not engine.is_idle:
        outcomes.update(engine.step())
    for request_id, expected in zip(ids, alone, strict=True):
        assert_bitwise_equal(outcomes[request_id], expected)
    assert_all_free(engine)


@pytest.mark.parametrize("space", [ScoreSpace.CODEBOOK, ScoreSpace.CATALOG])
def test_a_real_head_gives_the_same_scores(tiny_decoder: Decoder, space: ScoreSpace) -> None:
    request = ask(make_catalogue(), beam_width=20, score_space=space)
    (whole,) = BeamEngine(tiny_decoder, SMALL, slice_head=False).search([request])
    (sliced,) = BeamEngine(tiny_decoder, SMALL).search([request])
    assert sliced.leaves is not None
    np.testing.assert_array_equal(sliced.leaves, whole.leaves)
    np.testing.assert_allclose(sliced.scores, whole.scores, atol=1e-5, rtol=0)
