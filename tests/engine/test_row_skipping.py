"""Rows of the last level that cannot change the answer are not forwarded, and the answer does not change."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free
from tests.oracles.compare import certificate_faults
from tests.oracles.path_decoder import PathDecoder, PathLogits, random_path_logits
from tests.oracles.recompute_beam import Beam, recompute_beam
from tests.oracles.tries import Catalogue

VOCAB, PROMPT = 48, (1, 2, 3)
DOMINANT = VOCAB - 1
WIDE_LOGITS = cache(random_path_logits(VOCAB))


def whole_number_logits(spread: int, seed: int) -> PathLogits:
    """Log-probabilities of 0 for the dominant token, of a few hundreds below for all others; exactly, in fp64 too."""

    def path_logits(path: tuple[int, ...]) -> list[float]:
        logits = -100.0 * np.random.default_rng((seed, *path)).integers(1, spread + 1, VOCAB)
        logits[DOMINANT] = 0.0
        return logits.tolist()

    return cache(path_logits)


def run(decoder: PathDecoder | Decoder, request: BeamRequest, *, skip_rows: bool) -> BeamResult:
    engine = BeamEngine(decoder, SMALL, skip_rows=skip_rows)
    (result,) = engine.search([request])
    assert_all_free(engine)
    return result


def everything(decoder: PathDecoder, catalogue: Catalogue, space: ScoreSpace) -> list[Beam]:
    """Every path of the catalogue, best first, as a beam that never prunes finds them."""
    return recompute_beam(
        lambda prefixes: [decoder.path_logits(PROMPT + prefix) for prefix in prefixes],
        catalogue.children,
        catalogue.num_levels,
        10**6,
        space,
        catalogue.level_tokens,
    ).beams


def assert_skipping_changes_nothing(decoder: PathDecoder, request: BeamRequest) -> BeamResult:
    """All arrays to the bit, and what is proven; the bound may rise to the best row that was skipped, no further."""
    every, fewer = (run(decoder, request, skip_rows=skip_rows) for skip_rows in (False, True))
    for name in ("tokens", "scores", "log_probs", "ranks", "leaves"):
        np.testing.assert_array_equal(getattr(fewer, name), getattr(every, name), err_msg=name)
    assert fewer.proven_count == every.proven_count
    assert every.rows_skipped == 0
    assert fewer.rows_forwarded + fewer.rows_skipped == every.rows_forwarded
    assert fewer.bound == every.bound or (fewer.rows_skipped and every.bound < fewer.bound < fewer.scores[-1])
    return fewer


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    width=st.integers(1, 60),
    num_results=st.integers(0, 70),
    space=st.sampled_from(SPACES),
)
def test_the_answer_is_the_same_with_skipping_on_and_off(
    seed: int, sizes: list[int], width: int, num_results: int, space: ScoreSpace
) -> None:
    """Also for more results than beams, for single chains, and where nothing can be skipped."""
    catalogue = Catalogue.random(np.random.default_rng(seed), tuple(sizes), 150, VOCAB)
    decoder = PathDecoder(VOCAB, cache(random_path_logits(VOCAB, seed)))
    request = ask(
        catalogue, PROMPT, beam_width=width, num_results=num_results, score_space=space, with_ranks=bool(seed % 2)
    )
    result = assert_skipping_changes_nothing(decoder, request)
    assert len(result.scores) == min(num_results or width, width, len(catalogue.sids))
    assert certificate_faults(result, everything(decoder, catalogue, space)) == []


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    spread=st.integers(1, 3),
    width=st.integers(1, 50),
    num_results=st.integers(1, 20),
    space=st.sampled_from([ScoreSpace.VOCABULARY, ScoreSpace.CODEBOOK]),
)
def test_the_answer_is_the_same_where_scores_tie(
    seed: int, spread: int, width: int, num_results: int, space: ScoreSpace
) -> None:
    """Scores are whole numbers: rows tie with each other, with the worst answer, and with what is pruned."""
    rng = np.random.default_rng(seed)
    sizes = (6, 7, 6)
    tokens = [np.append(rng.permutation(VOCAB - 1)[: size - 1], DOMINANT) for size in sizes]
    columns = [rng.integers(0, size, 120) for size in sizes]  # the dominant code costs nothing: rows tie with answers
    catalogue = Catalogue({tuple(int(code) for code in sid) for sid in zip(*columns, strict=True)}, tokens)
    decoder = PathDecoder(VOCAB, whole_number_logits(spread, seed))
    request = ask(catalogue, PROMPT, beam_width=width, num_results=num_results, score_space=space)
    assert_skipping_changes_nothing(decoder, request)


def test_the_results_are_the_first_of_the_whole_beam() -> None:
    catalogue, decoder = wide_catalogue(), PathDecoder(VOCAB, WIDE_LOGITS)
    whole = run(decoder, ask(catalogue, PROMPT, beam_width=100), skip_rows=True)
    for num_results in (1, 10, 99, 100, 400):
        request = ask(catalogue, PROMPT, beam_width=100, num_results=num_results)
        cut = run(decoder, request, skip_rows=True)
        assert cut.tokens.tolist() == whole.tokens[:num_results].tolist()
        assert cut.proven_count == min(num_results, whole.proven_count)


def test_rows_are_skipped_where_few_results_are_asked_of_a_wide_beam() -> None:
    """Half of the last level at the least, here; and its two groups come one after another."""
    catalogue, decoder = wide_catalogue(), PathDecoder(VOCAB, WIDE_LOGITS)
    engine = BeamEngine(decoder, SMALL)
    engine.submit(ask(catalogue, PROMPT, beam_width=200, num_results=20, score_space=ScoreSpace.CATALOG))
    rows = []
    while not engine.is_idle:
        completed = engine.step()
        rows.append(engine.num_rows)
    ((_, result),) = completed
    assert rows[:2] == [24, 30]
    assert 0 < result.rows_skipped < 200
    assert result.rows_forwarded == 1 + sum(rows)
    assert result.rows_skipped >= 100
    assert_all_free(engine)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_rows_that_wait_give_their_slots_back_when_the_request_is_cancelled(steps: int) -> None:
    engine = BeamEngine(PathDecoder(VOCAB, WIDE_LOGITS), SMALL)
    doomed = engine.submit(ask(wide_catalogue(), PROMPT, beam_width=200, num_results=20))
    for _ in range(steps):
        engine.step()
    engine.cancel(doomed)
    assert_all_free(engine)


def test_impossible_tokens_leave_too_few_paths_to_skip_by() -> None:
    """The first rows lead nowhere, so those that wait are all forwarded."""
    catalogue = Catalogue({(a, b) for a in range(4) for b in range(2)}, [np.arange(4), np.arange(2)])
    nowhere = [-np.inf] * VOCAB
    logits = {(*PROMPT, 0): nowhere, (*PROMPT, 1): nowhere}
    decoder = PathDecoder(VOCAB, lambda path: logits.get(path, (-np.arange(VOCAB, dtype=float)).tolist()))
    result = run(decoder, ask(catalogue, PROMPT, beam_width=4, num_results=2), skip_rows=True)
    assert result.tokens.tolist() == [[2, 0], [2, 1]]
    assert (result.rows_forwarded, result.rows_skipped) == (5, 0)


@cache
def wide_catalogue() -> Catalogue:
    """More than 200 prefixes at the second level."""
    return Catalogue.random(np.random.default_rng(1), (24, 20, 24), 900, VOCAB)
