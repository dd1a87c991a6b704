"""A filtered catalogue is searched as the catalogue that holds nothing else: no beam is spent on what is dropped."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.kernels.fixed import REFERENCE_KERNELS
from recall_service.engine.request import SearchMode
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue, nodes_leading_to, random_level_tokens, random_sids

VOCAB = 32
SIZES = (5, 4, 6)


@settings(derandomize=True, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.02, 0.3, 0.9]),
    width=st.sampled_from([1, 3, 8, 64]),
    space=st.sampled_from(SPACES),
    mode=st.sampled_from(SearchMode),
    is_fixed=st.booleans(),
)
def test_equals_a_search_of_what_is_kept_alone(
    seed: int, share: float, width: int, space: Any, mode: SearchMode, is_fixed: bool
) -> None:
    rng = np.random.default_rng(seed)
    sids, level_tokens = random_sids(rng, SIZES, 60), random_level_tokens(rng, SIZES, VOCAB)
    every = Catalogue(sids, level_tokens)
    live = rng.random(len(sids)) < share
    live[rng.integers(len(sids))] = True
    kept = Catalogue({sid for sid, is_live in zip(sorted(sids), live, strict=True) if is_live}, level_tokens)
    filtered_constraint = every.constraint.keeping(nodes_leading_to(kept.sids, sids))
    engine = BeamEngine(
        PathDecoder(VOCAB, cache(random_path_logits(VOCAB))),
        SMALL,
        fixed_kernels=REFERENCE_KERNELS if is_fixed else None,
    )
    fields: dict[str, Any] = {"beam_width": width, "score_space": space, "search_mode": mode}
    filtered = ask(every, **fields, constraint_of=filtered_constraint)
    found, expected = engine.search([filtered, ask(kept, **fields)])
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert (found.bound, found.proven_count) == (expected.bound, expected.proven_count)
    assert live[found.leaves].all()
    assert_all_free(engine)


@pytest.mark.parametrize("fixed_kernels", [None, REFERENCE_KERNELS], ids=["ragged", "fixed"])
@pytest.mark.parametrize("mode", SearchMode)
@pytest.mark.parametrize("space", SPACES)
def test_where_nothing_is_kept_nothing_is_found(fixed_kernels: Any, mode: SearchMode, space: Any) -> None:
    catalogue = Catalogue.random(np.random.default_rng(1), SIZES, 40, VOCAB)
    nothing = catalogue.constraint.keeping(nodes_leading_to(set(), catalogue.sids))
    engine = BeamEngine(PathDecoder(VOCAB, random_path_logits(VOCAB)), SMALL, fixed_kernels=fixed_kernels)
    request = ask(catalogue, beam_width=4, score_space=space, search_mode=mode, constraint_of=nothing)
    (found,) = engine.search([request])
    assert len(found.scores) == 0
    assert found.bound == -np.inf
    assert_all_free(engine)
