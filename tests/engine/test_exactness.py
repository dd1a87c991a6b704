"""Search over a real tiny model against every item scored on its own, and against itself in other words."""

import numpy as np
import pytest
from transformers import PreTrainedModel

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamResult, ScoreSpace
from recall_service.engine.scheduler import EngineLimits
from tests.engine.driving import SMALL, SPACES, ask
from tests.make_checkpoint import make_model, write_checkpoint
from tests.oracles.compare import PER_TOKEN, compare
from tests.oracles.exhaustive import score_every_item
from tests.oracles.recompute_beam import Search, recompute_beam
from tests.oracles.teacher_forcing import next_token_logits
from tests.oracles.tries import Catalogue, Sid

PROMPT = (11, 60, 3, 3, 29)
LEVELS = (9, 8, 9)
TOKENS = [np.arange(start, start + size) for start, size in ((30, 9), (10, 8), (45, 9))]


def catalogue_of(sids: set[Sid]) -> Catalogue:
    return Catalogue(sids, TOKENS)


def all_sids(count: int = 150) -> set[Sid]:
    return Catalogue.random(np.random.default_rng(count), LEVELS, count, 64).sids


def search(decoder: Decoder, catalogue: Catalogue, prompt: tuple[int, ...] = PROMPT, **fields) -> BeamResult:
    return BeamEngine(decoder, SMALL).search([ask(catalogue, prompt, **fields)])[0]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
@pytest.mark.parametrize("count", [1, 3, 40, 150])
def test_a_beam_that_never_prunes_equals_the_exhaustive_search(
    tiny_model: PreTrainedModel, tiny_decoder: Decoder, count: int, space: ScoreSpace
) -> None:
    """P1, P5: every item, in order, with the score and the log-probabilities of teacher forcing."""
    catalogue = catalogue_of(all_sids(count))
    truth = Search(score_every_item(tiny_model, PROMPT, catalogue, space))
    result = search(tiny_decoder, catalogue, beam_width=catalogue.widest, score_space=space, with_ranks=True)
    assert compare(result, truth).faults == []
    assert result.proven_count == len(catalogue.sids)
    assert result.ranks.tolist() == [list(beam.ranks) for beam in truth.beams]


@pytest.mark.parametrize("prompt_len", [1, 3, 4, 5, 63, 64])
@pytest.mark.parametrize("width", [5, 60])
def test_a_beam_that_prunes_equals_the_blackboard(
    tiny_model: PreTrainedModel, tiny_decoder: Decoder, prompt_len: int, width: int
) -> None:
    """P2, P5, P15: prompts of one token, around a page of 4, and as long as allowed."""
    prompt = tuple(np.random.default_rng(prompt_len).integers(0, 64, prompt_len).tolist())
    catalogue, space = catalogue_of(all_sids()), SPACES[prompt_len % 3]
    expected = recompute_beam(
        next_token_logits(tiny_model, prompt), catalogue.children, 3, width, space, catalogue.level_tokens
    )
    comparison = compare(search(tiny_decoder, catalogue, prompt, beam_width=width, score_space=space), expected)
    assert comparison.faults == []
    assert not comparison.is_near_call


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
def test_a_score_is_the_sum_of_its_steps_and_never_positive(tiny_decoder: Decoder, space: ScoreSpace) -> None:
    """P5."""
    result = search(tiny_decoder, catalogue_of(all_sids()), beam_width=64, score_space=space)
    np.testing.assert_allclose(result.scores, result.log_probs.sum(1, dtype=np.float64), atol=2e-6, rtol=0)
    assert (result.log_probs <= 0).all()


def test_the_scores_of_a_whole_catalogue_are_a_distribution(tiny_decoder: Decoder) -> None:
    catalogue = catalogue_of(all_sids())
    result = search(tiny_decoder, catalogue, beam_width=200, score_space=ScoreSpace.CATALOG)
    assert np.exp(result.scores.astype(np.float64)).sum() == pytest.approx(1.0, abs=1e-5)


def test_other_names_for_the_same_tokens_give_the_same_items(tmp_path) -> None:
    """P8: permute the embeddings, the head and the catalogue's token ids alike; the items stay, in order."""
    model = make_model()
    renamed = np.random.default_rng(0).permutation(64)  # old id -> new id
    before = load_decoder(write_checkpoint(model, tmp_path / "before"))
    for matrix in (model.model.embed_tokens.weight, model.lm_head.weight):
        matrix.data = matrix.data[np.argsort(renamed)]
    after = load_decoder(write_checkpoint(model, tmp_path / "after"))
    sids = all_sids()
    plain = search(before, catalogue_of(sids), beam_width=40)
    other = search(
        after, Catalogue(sids, [renamed[tokens] for tokens in TOKENS]), tuple(renamed[list(PROMPT)]), beam_width=40
    )
    np.testing.assert_array_equal(renamed[plain.tokens], other.tokens)
    np.testing.assert_array_equal(plain.leaves, other.leaves)
    np.testing.assert_allclose(plain.scores, other.scores, atol=3 * PER_TOKEN, rtol=0)


def test_removing_what_was_not_answered_changes_nothing_and_adding_only_inserts(tiny_decoder: Decoder) -> None:
    """P9, for a beam that never prunes and scores that do not depend on the catalogue."""
    sids = all_sids()
    everything = search(tiny_decoder, catalogue_of(sids), beam_width=200)
    paths = [tuple(path) for path in everything.tokens.tolist()]
    removed = {sid for sid in sorted(sids)[::7] if catalogue_of(sids).path(sid) not in paths[:20]}
    fewer = search(tiny_decoder, catalogue_of(sids - removed), beam_width=200)
    gone = {catalogue_of(sids).path(sid) for sid in removed}
    assert len(removed) > 5
    assert [tuple(path) for path in fewer.tokens.tolist()] == [path for path in paths if path not in gone]


@pytest.mark.parametrize("width", [4, 40])
def test_stale_numbers_in_the_pools_never_reach_an_answer(tiny_decoder: Decoder, width: int) -> None:
    """P19: with the real attention, where a NaN times a weight of zero would still be NaN."""
    limits = EngineLimits(max_rows=64, max_steps=3, context_pages=8, page_len=4, prefix_cache=False)
    engine = BeamEngine(tiny_decoder, limits)
    request = ask(catalogue_of(all_sids()), PROMPT, beam_width=width)
    (expected,) = engine.search([request])
    for storage in (engine.pages.storage, engine.slots.storage):
        storage.keys.fill_(np.nan)
        storage.values.fill_(np.nan)
    (again,) = engine.search([request])
    np.testing.assert_array_equal(again.tokens, expected.tokens)
    np.testing.assert_array_equal(again.scores, expected.scores)
