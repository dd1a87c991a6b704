"""Searches of the whole vocabulary that end where they like, against transformers' generate and against enumeration."""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from recall_service.engine.engine import BeamEngine, StepReport
from recall_service.engine.generation import Generation
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamResult
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import InvalidRequest, ModelOutputError
from tests.engine.driving import SMALL, ask, assert_all_free, assert_bitwise_equal, drain
from tests.make_checkpoint import make_model, write_checkpoint
from tests.oracles.compare import PER_TOKEN
from tests.oracles.generate_freely import Sentence, generate_freely
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import Catalogue

INF = float("inf")
LONG = EngineLimits(max_rows=64, max_steps=64, context_pages=8, page_len=4, max_prompt_tokens=32)
LIKELY, OTHERS = 62, (20, 17, 5)
STOP_SETS = (frozenset(), frozenset({LIKELY}), frozenset({LIKELY, *OTHERS}))
EARLY_STOPPING = (True, False, "never")
LENGTH_PENALTIES = (0.0, 0.6, 1.0, 2.0, -0.5)
TEMPERATURES = (0.7, 1.0, 1.5)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """A model that takes to its stop tokens: often enough to end paths at every length, seldom enough to go on."""
    model = make_model("qwen3", seed=3)
    with torch.no_grad():
        model.lm_head.weight[[LIKELY, *OTHERS]] *= 1.7
    return model


@pytest.fixture(scope="module")
def decoder(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return load_decoder(write_checkpoint(model, tmp_path_factory.mktemp("stops")))


def prompt_of(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 64, 5).tolist()


def run(
    decoder: Decoder | PathDecoder, width: int, prompt: Sequence[int] = (1, 2, 3), *, num_results: int = 0, **fields
) -> BeamResult:
    """One free search alone, which leaves the engine empty."""
    engine, generation = BeamEngine(decoder, LONG), Generation(**fields)
    (result,) = engine.search([ask(None, prompt, beam_width=width, num_results=num_results, generation=generation)])
    assert_all_free(engine)
    return result


def paths_of(result: BeamResult) -> list[tuple[int, ...]]:
    """Without padding, which is checked on the way."""
    for part, filler in ((result.tokens, -1), (result.log_probs, 0.0), (result.ranks, 0)):
        if part is not None:
            beyond = np.arange(part.shape[1]) >= result.lengths[:, None]
            assert (part[beyond] == filler).all()
    return [tuple(row[:length]) for row, length in zip(result.tokens.tolist(), result.lengths, strict=True)]


def assert_same(result: BeamResult, expected: list[Sentence]) -> None:
    """As a set, in order, and in score within 1e-5 a token."""
    assert paths_of(result) == [sentence.path for sentence in expected]
    assert result.tokens.shape[1] == max(len(sentence.path) for sentence in expected)
    scores = [sentence.score for sentence in expected]
    np.testing.assert_allclose(result.scores, scores, atol=PER_TOKEN * result.tokens.shape[1], rtol=PER_TOKEN)


@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
def test_equals_generate(model, decoder: Decoder, early_stopping: bool | str, length_penalty: float) -> None:
    """P3, lesson 10: every second of a wide grid, in turns; the temperature goes round with it."""
    grid = list(product((1, 2, 4, 7, 16), (1, 3, 8, 20), STOP_SETS))
    lengths = set()
    first = LENGTH_PENALTIES.index(length_penalty) % 2
    for index, (width, max_new_tokens, stop_tokens) in enumerate(grid[first::2]):
        generation = Generation(
            max_new_tokens=max_new_tokens,
            stop_tokens=stop_tokens,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            temperature=TEMPERATURES[index % 7 % 3],
        )
        prompt = prompt_of(index)
        forwards: list[StepReport] = []
        engine = BeamEngine(decoder, LONG, observe_step=forwards.append)
        (result,) = engine.search([ask(None, prompt, beam_width=width, generation=generation)])
        expected = generate_freely(model, prompt, width, generation)
        assert_same(result, expected.sentences)
        assert len(forwards) == expected.num_forwards
        lengths |= set(result.lengths.tolist())
    assert {1, 3, 8, 20} < lengths  # the grid does reach paths that end in between


def test_temperature_stop_tokens_and_early_stopping_each_change_the_answer(decoder: Decoder) -> None:
    """So that the grid above tells them apart."""
    fields = {"stop_tokens": STOP_SETS[2], "max_new_tokens": 20, "length_penalty": 2.0}
    answers = {
        tuple(paths_of(run(decoder, 4, prompt_of(2), **(fields | change))))
        for change in (
            {"early_stopping": True},
            {"early_stopping": False},
            {"early_stopping": "never"},
            {"early_stopping": "never", "temperature": 1.5},
            {"early_stopping": "never", "stop_tokens": STOP_SETS[1]},
        )
    }
    assert len(answers) == 5


def test_an_early_stop_saves_rows(decoder: Decoder) -> None:
    fields = {"stop_tokens": STOP_SETS[2], "max_new_tokens": 20, "length_penalty": 2.0}
    costs = [run(decoder, 4, prompt_of(2), early_stopping=early, **fields).rows_forwarded for early in EARLY_STOPPING]
    assert costs[0] < costs[1] < costs[2] == 1 + 19 * 4


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("stop_tokens", STOP_SETS, ids=["no stop", "one stop", "four stops"])
def test_a_width_of_one_is_greedy(model, decoder: Decoder, early_stopping: bool, stop_tokens: frozenset[int]) -> None:
    """P11: against generate's own greedy search."""
    for seed in range(8):
        prompt = torch.tensor([prompt_of(seed)])
        greedy = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=20,
            do_sample=False,
            eos_token_id=sorted(stop_tokens) or None,
            pad_token_id=0,
        )
        fields = {"max_new_tokens": 20, "stop_tokens": stop_tokens, "early_stopping": early_stopping}
        assert paths_of(run(decoder, 1, prompt_of(seed), **fields)) == [tuple(greedy[0, 5:].tolist())]


@pytest.mark.parametrize("stop_tokens", [STOP_SETS[0], STOP_SETS[2]], ids=["no stop", "four stops"])
def test_num_results_cuts_the_same_answer_short(model, decoder: Decoder, stop_tokens: frozenset[int]) -> None:
    fields = {"max_new_tokens": 6, "stop_tokens": stop_tokens}
    whole = run(decoder, 7, prompt_of(1), **fields)
    assert len(whole.scores) == 7
    for count in (1, 3, 7):
        result = run(decoder, 7, prompt_of(1), num_results=count, **fields)
        assert_same(result, generate_freely(model, prompt_of(1), 7, Generation(**fields), count).sentences)
        assert paths_of(result) == paths_of(whole)[:count]


def test_a_stop_token_alone_may_be_the_answer_and_takes_no_forward() -> None:
    certain = PathDecoder(8, lambda path: [0.0] * 5 + [9.0, 0.0, 0.0])
    result = run(certain, 1, max_new_tokens=64, stop_tokens=frozenset({5}))
    assert (result.tokens.tolist(), result.lengths.tolist(), result.rows_forwarded) == ([[5]], [1], 1)


@cache
def all_paths(vocab_size: int, stop: int, longest: int) -> dict[tuple[int, ...], float]:
    """Every path there is, with the sum of its log-probabilities."""
    logits, live, paths = random_path_logits(vocab_size), {(): 0.0}, {}
    for length in range(1, longest + 1):
        longer = {}
        for path, score in live.items():
            row = torch.tensor(logits((1, 2, 3, *path))).double().log_softmax(0).tolist()
            longer |= {(*path, token): score + row[token] for token in range(vocab_size)}
        live = {path: score for path, score in longer.items() if path[-1] != stop and length < longest}
        paths |= {path: score for path, score in longer.items() if path not in live}
    return paths


@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
def test_more_beams_than_there_are_paths_give_every_path_once(
    early_stopping: bool | str, length_penalty: float
) -> None:
    """P1, lessons 1 and 2: transformers would fill up with duplicates at -1e9."""
    truth = all_paths(4, 2, 3)
    assert len(truth) == 1 + 3 + 9 * 4
    expected = sorted(
        (Sentence(path, score / len(path) ** length_penalty) for path, score in truth.items()),
        key=lambda sentence: -sentence.score,
    )
    fields = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    decoder = PathDecoder(4, random_path_logits(4))
    for width in (40, 64):
        assert_same(run(decoder, width, max_new_tokens=3, stop_tokens=frozenset({2}), **fields), expected)


@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
def test_fewer_continuations_than_beams_give_fewer_rows_never_duplicates(early_stopping: bool | str) -> None:
    """P4: at widths where transformers would seed fillers, every answer is a real path under its true score."""
    decoder, truth = PathDecoder(4, random_path_logits(4)), all_paths(4, 2, 3)
    for width in range(3, 40):
        fields = {"max_new_tokens": 3, "stop_tokens": frozenset({2}), "early_stopping": early_stopping}
        result = run(decoder, width, **fields)
        paths = paths_of(result)
        assert len(paths) == len(set(paths)) == width
        assert (np.diff(result.scores) <= 0).all()
        normalised = [truth[path] / len(path) for path in paths]
        np.testing.assert_allclose(result.scores, normalised, atol=1e-5)


def test_scores_ranks_and_log_probs_are_those_of_the_paths() -> None:
    """P5, with what lies beyond a path's length."""
    engine, path_logits = BeamEngine(PathDecoder(16, random_path_logits(16)), LONG), random_path_logits(16)
    fields = {"max_new_tokens": 6, "stop_tokens": frozenset({3, 4}), "length_penalty": 0.6, "temperature": 0.7}
    (result,) = engine.search([ask(None, beam_width=8, generation=Generation(**fields), with_ranks=True)])
    assert len(set(result.lengths.tolist())) > 1
    sums = result.log_probs.sum(1, dtype=np.float64)
    np.testing.assert_allclose(result.scores, sums / result.lengths**0.6, atol=1e-5)
    assert result.ranks is not None
    for path, log_probs, ranks in zip(paths_of(result), result.log_probs, result.ranks, strict=True):
        for place, token in enumerate(path):
            row = torch.tensor(path_logits((1, 2, 3, *path[:place]))) / 0.7
            assert abs(float(row.log_softmax(0)[token]) - log_probs[place]) < 1e-5
            assert int((row > row[token]).sum()) + 1 == ranks[place]


def test_ties_go_to_what_ended_earlier_then_to_the_lower_path() -> None:
    """P10: all logits equal, scores summed: three stop tokens and five others, so that everything of a length ties."""
    decoder = PathDecoder(8, lambda path: [0.0] * 8)
    fields = {"stop_tokens": frozenset({0, 3, 6}), "length_penalty": 1.0}
    result = run(decoder, 4, max_new_tokens=3, **fields)
    assert paths_of(result) == [(0,), (3,), (1, 0), (1, 3)]
    assert result.scores == pytest.approx([-np.log(8)] * 4)
    assert result.rows_forwarded == 1 + 4  # live beams that can but tie are not gone on with


def test_impossible_tokens_leave_fewer_paths_and_dead_ends_none() -> None:
    """P13."""
    rows = {(2,): [0.0, 0.0, -INF], (2, 0): [-INF] * 3, (2, 1): [-INF, 0.0, -INF], (2, 1, 1): [-INF, -INF, 0.0]}
    fields = {"max_new_tokens": 9, "stop_tokens": frozenset({2})}
    result = run(PathDecoder(3, rows.__getitem__), 6, [2], **fields)
    assert paths_of(result) == [(1, 1, 2)]
    nowhere = run(PathDecoder(3, lambda path: [-INF] * 3), 6, [2], **fields)
    assert (nowhere.tokens.shape, nowhere.lengths.shape, nowhere.scores.shape) == ((0, 9), (0,), (0,))


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, -0.5])
@pytest.mark.parametrize("num_results", [1, 5, 16])
def test_the_certificate_holds_where_all_paths_are_of_one_length(length_penalty: float, num_results: int) -> None:
    """The true top of all 4 ** 4 paths, in normalised scores, and everything lost is under the bound."""
    truth = all_paths(4, -1, 4)
    order = sorted(truth, key=truth.__getitem__, reverse=True)
    decoder = PathDecoder(4, random_path_logits(4))
    result = run(decoder, 16, num_results=num_results, max_new_tokens=4, length_penalty=length_penalty)
    assert len(result.scores) == num_results
    paths = paths_of(result)
    assert paths[: result.proven_count] == order[: result.proven_count]
    lost = [truth[path] / 4**length_penalty for path in order if path not in paths]
    assert max(lost) <= result.bound + 1e-5
    assert result.proven_count == int((result.scores > result.bound).sum()) >= 1


def test_nothing_is_proven_of_paths_of_many_lengths(decoder: Decoder) -> None:
    result = run(decoder, 8, max_new_tokens=6, stop_tokens=STOP_SETS[1])
    assert (result.bound, result.proven_count) == (INF, 0)


def test_sixty_four_tokens_in_a_pool_of_just_enough_slots(model, decoder: Decoder) -> None:
    """P18, P20: orphans are free after every step, or a pool of 8 x 63 slots could not do."""
    limits = EngineLimits(max_rows=8, max_steps=64, context_pages=2, page_len=4, max_prompt_tokens=8)
    engine = BeamEngine(decoder, limits)
    assert engine.slots.num_slots == 8 * 63
    generation = Generation(max_new_tokens=64, stop_tokens=STOP_SETS[1], early_stopping="never")
    request_id = engine.submit(ask(None, prompt_of(4), generation=generation))
    outcomes, used = {}, []
    while not engine.is_idle:
        outcomes.update(engine.step())
        named = [rows.slots for running in engine._running for rows in running.groups]
        assert engine.slots.num_used == sum(len(slots.unique()) for slots in named)
        used.append(engine.slots.num_used)
    assert max(used) < 8 * 63 / 2  # beams share most of their ancestors
    assert_same(outcomes[request_id], generate_freely(model, prompt_of(4), 8, generation).sentences)
    assert int(outcomes[request_id].lengths.max()) == 64
    assert_all_free(engine)


def test_among_constrained_searches_every_bit_is_the_same_as_alone() -> None:
    """P14, P18: they come late, end early, are cancelled; searches of all kinds share the forwards."""
    vocab_size = 24
    decoder = PathDecoder(vocab_size, cache(random_path_logits(vocab_size)))
    catalogue = Catalogue.random(np.random.default_rng(5), (6, 6, 6), 90, vocab_size)
    free = [
        Generation(max_new_tokens=longest, stop_tokens=frozenset(stops), early_stopping=early, length_penalty=2.0)
        for longest, stops, early in ((12, {1, 2, 3}, True), (5, set(), False), (20, {7}, "never"))
    ]
    requests = [ask(None, [4, index], beam_width=5 + index, generation=each) for index, each in enumerate(free)]
    requests += [ask(catalogue, [index], beam_width=width) for index, width in enumerate((1, 9, 17))]
    alone = [BeamEngine(decoder, LONG).search([request])[0] for request in requests]
    for rotation in range(6):
        engine = BeamEngine(decoder, LONG)
        order = np.roll(np.arange(6), rotation)
        ids, outcomes = {}, {}
        for index in order:
            ids[index] = engine.submit(requests[index])
            outcomes.update(engine.step())
        doomed = engine.submit(ask(None, generation=free[2]))
        outcomes.update(engine.step())
        engine.cancel(doomed)
        outcomes.update(drain(engine))
        for index, expected in enumerate(alone):
            assert_bitwise_equal(outcomes[ids[index]], expected)
        assert_all_free(engine)


def test_logits_that_are_not_numbers_fail_that_search_alone() -> None:
    healthy = random_path_logits(16)
    decoder = PathDecoder(16, lambda path: [np.nan] * 16 if path[0] == 9 and len(path) > 3 else healthy(path))
    engine = BeamEngine(decoder, LONG)
    generation = Generation(max_new_tokens=8, stop_tokens=frozenset({3}))
    good, bad = (engine.submit(ask(None, [first, 1], generation=generation)) for first in (8, 9))
    outcomes = drain(engine)
    assert isinstance(outcomes[good], BeamResult)
    assert isinstance(outcomes[bad], ModelOutputError)
    assert_all_free(engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop_tokens": frozenset({3, 64})}, "generation.stop_tokens: holds 64; the model's ids are 0 to 63"),
        ({"stop_tokens": frozenset({-1})}, "generation.stop_tokens: holds -1; the model's ids are 0 to 63"),
        ({"length_penalty": np.nan}, "generation.length_penalty: nan; give -10 to 10"),
        ({"length_penalty": 11.0}, "generation.length_penalty: 11.0; give -10 to 10"),
        ({"temperature": 0.0}, "generation.temperature: 0.0; give 0.01 to 100"),
        ({"temperature": INF}, "generation.temperature: inf; give 0.01 to 100"),
        ({"early_stopping": "always"}, "generation.early_stopping: 'always'; give True, False or \"never\""),
    ],
)
def test_what_no_search_can_be_is_refused(decoder: Decoder, change: dict, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        BeamEngine(decoder, SMALL).submit(ask(None, generation=Generation(max_new_tokens=3, **change)))
    assert str(refused.value) == message


def test_everything_wrong_with_a_generation_is_named_at_once(decoder: Decoder) -> None:
    generation = Generation(max_new_tokens=6, temperature=-1.0, length_penalty=99.0, stop_tokens=frozenset({99}))
    with pytest.raises(InvalidRequest) as refused:
        BeamEngine(decoder, SMALL).submit(ask(None, generation=generation))
    names = ["max_new_tokens", "stop_tokens", "length_penalty", "temperature"]
    assert [violation.field for violation in refused.value.violations] == [f"generation.{name}" for name in names]
