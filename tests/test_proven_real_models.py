"""PROVEN on trained models and real catalogues: the same top as a beam wide enough to keep every prefix."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.proven import search_user
from benchmarks.real_models import BEAUTY, INDUSTRIAL, RealModel
from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest, SearchMode
from recall_service.engine.scheduler import EngineLimits
from recall_service.serving.bundles.bundle import Bundle, load_bundle
from tests.engine.driving import assert_all_free

pytestmark = [pytest.mark.shared, pytest.mark.timeout(300)]

NUM_ITEMS = 100
PER_PATH = 5e-5  # of a score, for fp32 matrix products of other shapes


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def load(model: RealModel, shared_data: Path, directory: Path) -> Bundle:
    return load_bundle(model.write_bundle(shared_data, directory))


@pytest.mark.parametrize(("model", "num_users"), [(BEAUTY, 2), (INDUSTRIAL, 4)], ids=["beauty", "industrial"])
def test_the_proven_top_is_that_of_a_beam_that_keeps_every_prefix(
    model: RealModel, num_users: int, shared_data: Path, tmp_path: Path
) -> None:
    bundle = load(model, shared_data, tmp_path)
    everything = bundle.catalog.trie.num_leaves
    limits = EngineLimits(max_rows=everything, max_steps=model.num_levels, max_slots=3 * everything)
    engine = BeamEngine(bundle.model, limits, skip_rows=False)
    for history in model.histories(shared_data, num_users):
        prompt, _ = bundle.history_prompt(history)

        def ask(width: int, mode: SearchMode, prompt: np.ndarray = prompt) -> BeamRequest:
            return BeamRequest(
                prompt=prompt,
                beam_width=width,
                constraint=bundle.constraint,
                num_results=NUM_ITEMS,
                search_mode=mode,
                score_space=bundle.file.search.score_space,
            )

        (proven,) = engine.search([ask(NUM_ITEMS, SearchMode.PROVEN)])
        (whole,) = engine.search([ask(everything, SearchMode.BEAM)])
        assert proven.proven_count == NUM_ITEMS
        np.testing.assert_allclose(proven.scores, whole.scores, atol=PER_PATH, rtol=0)
        for place in np.flatnonzero((proven.tokens != whole.tokens).any(1)):
            nearest = np.abs(np.delete(whole.scores, place) - whole.scores[place]).min()
            assert min(nearest, whole.scores[place] - whole.bound) < PER_PATH  # too near to tell
        assert_all_free(engine)


def test_skipping_and_proving_cost_what_they_should(shared_data: Path, tmp_path: Path) -> None:
    """On Beauty: three plain beams prove every answer, and a wide beam for few items saves a quarter of its rows."""
    bundle = load(BEAUTY, shared_data, tmp_path)
    limits = EngineLimits(max_steps=BEAUTY.num_levels, prefix_cache=False)
    skipping, plain = (BeamEngine(bundle.model, limits, skip_rows=skip_rows) for skip_rows in (True, False))
    for history in BEAUTY.histories(shared_data, 5):
        prompt, _ = bundle.history_prompt(history)
        user = search_user(bundle, skipping, plain, prompt, NUM_ITEMS)
        assert user.proven.proven_count == NUM_ITEMS
        assert user.proven.rows_forwarded < 3 * user.same_width.rows_forwarded
        assert user.wide_few_skipping.rows_forwarded < 0.75 * user.wide_few.rows_forwarded
        assert user.wide_few_skipping.tokens.tolist() == user.wide_few.tokens.tolist()
        assert user.wide_few_skipping.proven_count == user.wide_few.proven_count
