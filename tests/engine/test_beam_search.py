"""The whole search on injected logits against a beam search on a blackboard (O2), and plain facts of answers."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free, assert_bitwise_equal, oracle
from tests.engine.test_select_top import WIDTHS
from tests.oracles.compare import compare
from tests.oracles.path_decoder import PathDecoder, integer_path_logits, random_path_logits
from tests.oracles.tries import Catalogue

VOCAB = 48
DOMINANT = VOCAB - 1
INF = float("inf")


def run(decoder: PathDecoder, request: BeamRequest) -> BeamResult:
    """One search on an engine of its own, which must be left as it was found."""
    engine = BeamEngine(decoder, SMALL)
    (result,) = engine.search([request])
    assert_all_free(engine)
    return result


def assert_equals_oracle(
    decoder: PathDecoder, request: BeamRequest, catalogue: Catalogue, per_token: float = 1e-5
) -> BeamResult:
    result, expected = run(decoder, request), oracle(decoder, request, catalogue)
    comparison = compare(result, expected, per_token)
    assert comparison.faults == []
    assert not comparison.is_near_call
    assert result.proven_count == sum(beam.score > expected.bound for beam in expected.beams)
    return result


def assert_is_a_proper_answer(result: BeamResult, width: int, catalogue: Catalogue) -> None:
    """P4."""
    paths = [tuple(path) for path in result.tokens.tolist()]
    assert len(paths) == len(set(paths)) == min(width, len(catalogue.sids))
    assert set(paths) <= {catalogue.path(sid) for sid in catalogue.sids}
    assert np.isfinite(result.scores).all()
    assert (np.diff(result.scores) <= 0).all()
    leaves = sorted(catalogue.sids)
    assert [catalogue.path(leaves[leaf]) for leaf in result.leaves] == paths


@cache
def wide_catalogue() -> Catalogue:
    """More prefixes than 400 at the second and third level."""
    return Catalogue.random(np.random.default_rng(1), (24, 20, 24), 900, VOCAB)


@cache
def wide_decoder() -> PathDecoder:
    return PathDecoder(VOCAB, cache(random_path_logits(VOCAB)))


@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_equals_the_blackboard(width: int) -> None:
    """P2, P4, P11, lesson 6; also wider than the first level has tokens."""
    space = SPACES[width % 3]
    request = ask(wide_catalogue(), beam_width=width, score_space=space)
    result = assert_equals_oracle(wide_decoder(), request, wide_catalogue())
    assert_is_a_proper_answer(result, width, wide_catalogue())


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    count=st.integers(1, 40),
    width=st.integers(1, 50),
    space=st.sampled_from(SPACES),
)
def test_any_catalogue_and_width_equal_the_blackboard(
    seed: int, sizes: list[int], count: int, width: int, space: ScoreSpace
) -> None:
    """P2, P4, P12: single chains, levels 1 to 5, codebooks of one; ranks as well."""
    catalogue = Catalogue.random(np.random.default_rng(seed), tuple(sizes), count, VOCAB)
    decoder = PathDecoder(VOCAB, random_path_logits(VOCAB, seed))
    request = ask(catalogue, beam_width=width, score_space=space, with_ranks=True)
    result = assert_equals_oracle(decoder, request, catalogue)
    assert result.ranks.tolist() == [list(beam.ranks) for beam in oracle(decoder, request, catalogue).beams]


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 40),
    spread=st.integers(1, 4),
    space=st.sampled_from([ScoreSpace.VOCABULARY, ScoreSpace.CODEBOOK]),
)
def test_exact_ties_fall_as_stated(seed: int, width: int, spread: int, space: ScoreSpace) -> None:
    """P10, lesson 11: scores are whole numbers, so ties are many and exact, within rows and between them."""
    rng = np.random.default_rng(seed)
    sizes = (6, 7, 6)
    tokens = [np.append(rng.permutation(VOCAB - 1)[:size], DOMINANT) for size in sizes]  # no item has the last code
    columns = [rng.integers(0, size, 80) for size in sizes]
    catalogue = Catalogue({tuple(int(code) for code in sid) for sid in zip(*columns, strict=True)}, tokens)
    decoder = PathDecoder(VOCAB, integer_path_logits(VOCAB, DOMINANT, spread, seed))
    assert_equals_oracle(decoder, ask(catalogue, beam_width=width, score_space=space), catalogue, per_token=0.0)


@pytest.mark.parametrize("width", [1, 5, 32, 33, 100, 400])
@pytest.mark.parametrize("space", [ScoreSpace.VOCABULARY, ScoreSpace.CODEBOOK], ids=lambda space: space.value)
def test_all_equal_logits_give_the_first_paths(width: int, space: ScoreSpace) -> None:
    """P10."""
    catalogue = Catalogue({(a, b, c) for a in range(5) for b in range(4) for c in range(6)}, [np.arange(6)] * 3)
    result = run(PathDecoder(VOCAB, lambda path: [0.0] * VOCAB), ask(catalogue, beam_width=width, score_space=space))
    assert result.tokens.tolist() == [list(sid) for sid in sorted(catalogue.sids)[:width]]


def test_the_same_search_a_hundred_times_is_the_same_bits() -> None:
    """P10."""
    engine = BeamEngine(PathDecoder(VOCAB, cache(integer_path_logits(VOCAB, DOMINANT, 3))), SMALL)
    request = ask(wide_catalogue(), beam_width=64, with_ranks=True)
    first, *others = (engine.search([request])[0] for _ in range(100))
    for other in others:
        assert_bitwise_equal(first, other)


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
def test_three_items_are_three_answers_at_any_width(width: int, space: ScoreSpace) -> None:
    """Lessons 1 and 2: no duplicates, no fillers."""
    catalogue = Catalogue({(0, 1, 2), (0, 1, 3), (4, 0, 0)}, [np.arange(5)] * 3)
    decoder = PathDecoder(VOCAB, random_path_logits(VOCAB))
    result = assert_equals_oracle(decoder, ask(catalogue, beam_width=width, score_space=space), catalogue)
    assert_is_a_proper_answer(result, width, catalogue)


@pytest.mark.parametrize("num_items", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 2, 10, 400])
def test_few_items_and_many_beams(num_items: int, width: int) -> None:
    """Lesson 2: a single item, and W = 400 over a handful."""
    catalogue = Catalogue({(item, 0, item) for item in range(num_items)}, [np.arange(9)] * 3)
    result = run(PathDecoder(VOCAB, random_path_logits(VOCAB)), ask(catalogue, beam_width=width))
    assert_is_a_proper_answer(result, width, catalogue)


def test_a_width_of_one_is_greedy() -> None:
    """P11."""
    decoder, catalogue, path = wide_decoder(), wide_catalogue(), ()
    for _ in range(3):
        row = decoder.path_logits((1, 2, 3, *path))
        path = (*path, max(catalogue.children(path), key=row.__getitem__))
    assert run(decoder, ask(catalogue, beam_width=1)).tokens.tolist() == [list(path)]


@pytest.mark.parametrize("width", [VOCAB - 1, VOCAB, VOCAB + 1, 400])
def test_a_free_search_equals_the_blackboard(width: int) -> None:
    """P2, P11: W around V, no catalogue at all."""
    decoder, everything = wide_decoder(), np.arange(VOCAB)
    free = Catalogue({(a, b) for a in range(VOCAB) for b in range(VOCAB)}, [everything, everything])
    request = ask(None, beam_width=width, num_steps=2)
    result = run(decoder, request)
    assert compare(result, oracle(decoder, request, free)).faults == []
    assert result.leaves is None


def test_impossible_tokens_leave_fewer_answers_and_a_dead_catalogue_none() -> None:
    """P13: -inf on legal tokens at a deeper level, then everywhere."""
    catalogue = Catalogue({(0, 0), (0, 1), (1, 0), (1, 1)}, [np.arange(2), np.arange(2)])
    dead_end = {(2,): [0.0, 0.0, 0.0], (2, 0): [-INF, 0.0, 0.0], (2, 1): [-INF, -INF, 0.0]}
    result = run(PathDecoder(3, dead_end.__getitem__), ask(catalogue, [2]))
    assert result.tokens.tolist() == [[0, 1]]
    nowhere = run(PathDecoder(3, lambda path: [-INF] * 3), ask(catalogue, [2]))
    assert (nowhere.tokens.shape, nowhere.bound, nowhere.proven_count) == ((0, 2), -INF, 0)


def test_pages_and_slots_of_an_earlier_request_hold_no_sway() -> None:
    """P19: both pools are filled with NaN before each search."""
    engine = BeamEngine(wide_decoder(), SMALL)
    request = ask(wide_catalogue(), beam_width=33, with_ranks=True)
    expected = engine.search([request])[0]
    for value in (np.nan, np.inf, 7.0):
        for storage in (engine.pages.storage, engine.slots.storage):
            storage.keys.fill_(value)
            storage.values.fill_(value)
        assert_bitwise_equal(engine.search([request])[0], expected)
