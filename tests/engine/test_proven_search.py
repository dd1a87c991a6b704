"""PROVEN against every item of the catalogue: the true top, ties included, or as much as the budget proves."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace, SearchMode
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import InvalidRequest, ModelOutputError, RequestCancelled
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free, assert_bitwise_equal, drain
from tests.engine.test_row_skipping import (
    DOMINANT,
    PROMPT,
    VOCAB,
    WIDE_LOGITS,
    everything,
    whole_number_logits,
    wide_catalogue,
)
from tests.oracles.compare import certificate_faults
from tests.oracles.exhaustive import score_every_item
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.recompute_beam import Beam
from tests.oracles.tries import Catalogue

ENOUGH = 2000  # rows: more than any catalogue here has prefixes


def ask_proven(catalogue: Catalogue, **fields: Any) -> BeamRequest:
    return ask(catalogue, PROMPT, **({"search_mode": SearchMode.PROVEN, "row_budget": ENOUGH} | fields))


def run(decoder: PathDecoder | Decoder, request: BeamRequest) -> BeamResult:
    engine = BeamEngine(decoder, SMALL)
    (result,) = engine.search([request])
    assert_all_free(engine)
    return result


def assert_is_the_true_top(result: BeamResult, truth: list[Beam], count: int, *, exactly: bool = False) -> None:
    """Same paths in the same places, unless rounding may swap them; all proven."""
    expected = truth[:count]
    assert len(result.scores) == len(expected) == result.proven_count
    np.testing.assert_allclose(result.scores, [beam.score for beam in expected], atol=0 if exactly else 5e-5, rtol=0)
    if exactly or min(np.diff([beam.score for beam in truth[: count + 1]]), default=-1, key=abs) < -1e-4:
        assert [tuple(path) for path in result.tokens.tolist()] == [beam.path for beam in expected]
    assert certificate_faults(result, truth) == []


@settings(derandomize=True, max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    width=st.integers(1, 40),
    num_results=st.integers(1, 60),
    space=st.sampled_from(SPACES),
)
def test_any_catalogue_and_width_give_the_true_top(
    seed: int, sizes: list[int], width: int, num_results: int, space: ScoreSpace
) -> None:
    """Levels 1 to 5, single chains, more results than items, a beam of one."""
    catalogue = Catalogue.random(np.random.default_rng(seed), tuple(sizes), 150, VOCAB)
    decoder = PathDecoder(VOCAB, cache(random_path_logits(VOCAB, seed)))
    request = ask_proven(catalogue, beam_width=width, num_results=num_results, score_space=space, with_ranks=True)
    result, truth = run(decoder, request), everything(decoder, catalogue, space)
    assert_is_the_true_top(result, truth, num_results)
    assert [tuple(catalogue.path(sorted(catalogue.sids)[leaf])) for leaf in result.leaves] == [
        tuple(path) for path in result.tokens.tolist()
    ]
    ranks = {beam.path: list(beam.ranks) for beam in truth}
    assert result.ranks.tolist() == [ranks[tuple(path)] for path in result.tokens.tolist()]


@settings(derandomize=True, max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    spread=st.integers(1, 4),
    width=st.integers(1, 30),
    num_results=st.integers(1, 30),
    space=st.sampled_from([ScoreSpace.VOCABULARY, ScoreSpace.CODEBOOK]),
)
def test_exact_ties_fall_as_in_a_beam_that_never_prunes(
    seed: int, spread: int, width: int, num_results: int, space: ScoreSpace
) -> None:
    """Scores are whole numbers; the dominant code costs nothing, so pruned prefixes tie with the worst answer too."""
    rng = np.random.default_rng(seed)
    sizes = (5, 6, 5)
    tokens = [rng.permutation(np.append(rng.permutation(VOCAB - 1)[: size - 1], DOMINANT)) for size in sizes]
    columns = [rng.integers(0, size, 80) for size in sizes]
    catalogue = Catalogue({tuple(int(code) for code in sid) for sid in zip(*columns, strict=True)}, tokens)
    decoder = PathDecoder(VOCAB, whole_number_logits(spread, seed))
    result = run(decoder, ask_proven(catalogue, beam_width=width, num_results=num_results, score_space=space))
    assert_is_the_true_top(result, everything(decoder, catalogue, space), num_results, exactly=True)


def test_a_path_found_later_comes_first_where_its_parent_scores_more() -> None:
    """Both score -600. The beam of one finds (0, 0, 0), whose parent has -500; pruned was (1, 0, 0)'s, with -300."""
    catalogue = Catalogue({(0, 0, 0), (1, 0, 0)}, [np.array([0, 1]), np.array([2, 3]), np.array([4, 5])])
    logits = {(): {0: -100, 1: -200}, (0,): {2: -400}, (0, 2): {4: -100}, (1,): {2: -100}, (1, 2): {4: -300}}
    row = {path: [tokens.get(token, -1000.0) for token in range(6)] for path, tokens in logits.items()}
    decoder = PathDecoder(7, lambda path: [*row[path[1:]], 0.0])  # the last token makes every normaliser exactly 0
    result = run(decoder, ask(catalogue, [6], beam_width=1, row_budget=9, search_mode=SearchMode.PROVEN))
    assert result.tokens.tolist() == [[1, 2, 4]]
    assert (result.scores.tolist(), result.proven_count, result.rows_forwarded) == ([-600.0], 1, 5)


@pytest.mark.parametrize("num_results", [1, 7, 40])
def test_all_equal_logits_give_the_first_paths(num_results: int) -> None:
    catalogue = Catalogue({(a, b, c) for a in range(5) for b in range(4) for c in range(6)}, [np.arange(6)] * 3)
    decoder = PathDecoder(VOCAB, lambda path: [0.0] * VOCAB)
    result = run(decoder, ask_proven(catalogue, beam_width=3, num_results=num_results))
    assert result.tokens.tolist() == [list(sid) for sid in sorted(catalogue.sids)[:num_results]]
    assert result.proven_count == num_results


@settings(derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10**6), budget=st.integers(1, 150), width=st.integers(1, 20), space=st.sampled_from(SPACES))
def test_when_the_budget_is_spent_the_certificate_holds(seed: int, budget: int, width: int, space: ScoreSpace) -> None:
    """Never more rows than the budget or the beam, never fewer answers than a beam's, nothing proven that is not so."""
    catalogue = Catalogue.random(np.random.default_rng(seed), (7, 8, 7), 120, VOCAB)
    decoder = PathDecoder(VOCAB, cache(random_path_logits(VOCAB, seed)))
    asked = {"beam_width": width, "num_results": seed % (width + 1), "score_space": space}
    beam = run(decoder, ask(catalogue, PROMPT, **asked))
    result = run(decoder, ask_proven(catalogue, row_budget=budget, **asked))
    assert certificate_faults(result, everything(decoder, catalogue, space)) == []
    assert result.rows_forwarded <= max(budget, beam.rows_forwarded + beam.rows_skipped)
    assert len(result.scores) == len(beam.scores)
    assert (result.scores >= beam.scores).all()
    assert result.proven_count >= beam.proven_count
    if budget <= beam.rows_forwarded:
        assert result.tokens.tolist() == beam.tokens.tolist()


def test_a_larger_budget_proves_more_until_all_is_proven() -> None:
    decoder = PathDecoder(VOCAB, WIDE_LOGITS)
    requests = [ask_proven(wide_catalogue(), beam_width=30, row_budget=budget) for budget in (1, 100, 150, 300, ENOUGH)]
    results = [run(decoder, request) for request in requests]
    proven = [result.proven_count for result in results]
    assert proven == sorted(proven)
    assert proven[0] < proven[-1] == 30
    assert results[-1].rows_forwarded < ENOUGH / 4


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
@pytest.mark.parametrize("width", [4, 32])
def test_a_real_models_answer_is_the_true_top(tiny_model, tiny_decoder: Decoder, width: int, space: ScoreSpace) -> None:
    """O1 by transformers."""
    catalogue = Catalogue.random(np.random.default_rng(width), (9, 9, 9), 200, 64)
    truth = score_every_item(tiny_model, PROMPT, catalogue, space)
    result = run(tiny_decoder, ask_proven(catalogue, beam_width=width, num_results=20, score_space=space))
    assert_is_the_true_top(result, truth, 20)


def test_the_engines_own_budget_is_four_beams_or_what_its_slots_hold() -> None:
    catalogue = Catalogue({(a, b, c) for a in range(9) for b in range(9) for c in range(9)}, [np.arange(9)] * 3)
    decoder = PathDecoder(VOCAB, WIDE_LOGITS)
    for max_rows, most in ((512, 4 * (1 + 2 * 4)), (8, 8 * 2 + 1)):
        limits = EngineLimits(max_rows=max_rows, max_steps=3, context_pages=4, page_len=4)
        engine = BeamEngine(decoder, limits)
        request = ask_proven(catalogue, beam_width=4, num_results=300, row_budget=0)  # more than that can prove
        (result,) = engine.search([request])
        assert result.rows_forwarded == most
        assert_all_free(engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"row_budget": -1}, "row_budget: -1; give 0 to 2049", id="negative budget"),
        pytest.param({"row_budget": 2050}, "row_budget: 2050; give 0 to 2049", id="budget over the slots"),
        pytest.param({"num_results": -1}, "num_results: -1; give 0 for the beam width, or more", id="negative results"),
        pytest.param({"beam_width": 513}, "beam_width: 513; give 1 to 512", id="too wide"),
    ],
)
def test_what_could_never_run_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        BeamEngine(PathDecoder(VOCAB, WIDE_LOGITS), SMALL).submit(ask_proven(wide_catalogue(), **change))
    assert str(refused.value) == message


def test_a_free_search_cannot_be_proven() -> None:
    with pytest.raises(InvalidRequest, match="search_mode: PROVEN; a free search knows BEAM alone"):
        BeamEngine(PathDecoder(VOCAB, WIDE_LOGITS), SMALL).submit(ask(None, num_steps=2, search_mode=SearchMode.PROVEN))


def companions() -> list[BeamRequest]:
    """Searches of every kind."""
    return [
        ask_proven(wide_catalogue(), beam_width=16, row_budget=200, with_ranks=True),
        ask(wide_catalogue(), (4, 5), beam_width=50, num_results=10, with_ranks=True),
        ask(None, (6,), num_steps=4, beam_width=20, with_ranks=True),
        ask_proven(Catalogue({(code,) for code in range(9)}, [np.arange(9)]), beam_width=4, row_budget=9),
        ask_proven(wide_catalogue(), beam_width=3, num_results=12, row_budget=300, score_space=ScoreSpace.CATALOG),
    ]


def test_in_company_every_bit_is_the_same() -> None:
    """P14: with beams and free searches that join at other steps."""
    decoder = PathDecoder(VOCAB, WIDE_LOGITS)
    alone = [run(decoder, request) for request in companions()]
    engine = BeamEngine(decoder, SMALL)
    ids, outcomes = [], {}
    for request in companions():
        ids.append(engine.submit(request))
        outcomes.update(engine.step())
    outcomes.update(drain(engine))
    for request_id, expected in zip(ids, alone, strict=True):
        assert_bitwise_equal(outcomes[request_id], expected)
    assert_all_free(engine)


@pytest.mark.parametrize("steps", range(1, 6))
def test_cancelled_in_any_round_it_gives_everything_back(steps: int) -> None:
    """P18, P25."""
    engine = BeamEngine(PathDecoder(VOCAB, WIDE_LOGITS), SMALL)
    doomed = engine.submit(ask_proven(wide_catalogue(), beam_width=20))
    for _ in range(steps):
        assert engine.step() == []
    assert engine.num_running == 1
    engine.cancel(doomed)
    assert engine.slots.num_used == 0
    assert isinstance(drain(engine)[doomed], RequestCancelled)
    assert_all_free(engine)


@pytest.mark.parametrize("bad_call", range(1, 6))
def test_a_model_that_gives_no_number_in_any_round_fails_that_request_alone(bad_call: int) -> None:
    """P13, P18."""
    decoder = PathDecoder(VOCAB, WIDE_LOGITS)
    other = ask(wide_catalogue(), (9,), beam_width=20, with_ranks=True)
    expected = run(decoder, other)
    engine, path_logits, calls = BeamEngine(decoder, SMALL), decoder.path_logits, []
    bad, good = engine.submit(ask_proven(wide_catalogue(), beam_width=20)), engine.submit(other)
    decoder.path_logits = lambda path: (
        [np.nan] * VOCAB if path[0] == 1 and len(calls) == bad_call else path_logits(path)
    )
    outcomes = {}
    while not engine.is_idle:
        calls.append("step")
        outcomes.update(engine.step())
    assert type(outcomes[bad]) is ModelOutputError
    assert_bitwise_equal(outcomes[good], expected)
    assert_all_free(engine)


@settings(derandomize=True, max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_in_the_tightest_pools_nothing_fails_for_want_of_slots(seed: int) -> None:
    """P20: budgets up to all slots there are, beside plain beams."""
    rng = np.random.default_rng(seed)
    decoder = PathDecoder(VOCAB, WIDE_LOGITS)
    engine = BeamEngine(decoder, EngineLimits(max_rows=8, max_steps=3, context_pages=8, page_len=4))
    requests = []
    for _ in range(12):
        width = int(rng.integers(1, 9))
        proven = ask_proven(
            wide_catalogue(),
            beam_width=width,
            num_results=int(rng.integers(1, 12)),
            row_budget=int(rng.integers(0, 18)),
            score_space=SPACES[rng.integers(3)],
        )
        requests.append(proven if rng.integers(2) else ask(wide_catalogue(), beam_width=width))
    for request, result in zip(requests, engine.search(requests), strict=True):
        assert len(result.scores) == min(request.num_results or request.beam_width, len(result.scores)) > 0
    assert_all_free(engine)
    assert engine._scheduler.reserved_slots == 0


def test_a_budget_reserves_its_slots_and_bounds_what_is_held() -> None:
    """P20: of 2,048 slots two such requests would need 2,198, so the second waits, though its rows would fit."""
    engine = BeamEngine(PathDecoder(VOCAB, WIDE_LOGITS), SMALL)
    for _ in range(2):
        engine.submit(ask_proven(wide_catalogue(), beam_width=20, row_budget=1100))
    engine.step()
    assert (engine.num_running, engine.num_waiting) == (1, 1)
    assert engine._scheduler.reserved_slots == 1099
    drain(engine)
    assert_all_free(engine)

    engine.submit(ask_proven(wide_catalogue(), beam_width=8, num_results=100, row_budget=60))
    while not engine.is_idle:
        for running in engine._running:
            held = sum(len(slots) for slots in running.search.held_slots())
            assert held <= max(60 - running.rows_forwarded - running.num_rows, 0) or not running.steps
        engine.step()
    assert_all_free(engine)


def test_a_dead_catalogue_gives_nothing_and_proves_it() -> None:
    """P13."""
    catalogue = Catalogue({(0, 0), (0, 1), (1, 0)}, [np.arange(2), np.arange(2)])
    nowhere = run(PathDecoder(3, lambda path: [-np.inf] * 3), ask(catalogue, [2], search_mode=SearchMode.PROVEN))
    assert (nowhere.tokens.shape, nowhere.bound, nowhere.proven_count) == ((0, 2), -np.inf, 0)
    dead_end = {(2,): [0.0, -5.0, 0.0], (2, 0): [-np.inf, -np.inf, 0.0], (2, 1): [0.0, 0.0, 0.0]}
    narrow = ask(catalogue, [2], beam_width=1, search_mode=SearchMode.PROVEN)
    found = run(PathDecoder(3, dead_end.__getitem__), narrow)
    assert found.tokens.tolist() == [[1, 0]]  # where a beam of one answers nothing
    assert found.proven_count == 1
