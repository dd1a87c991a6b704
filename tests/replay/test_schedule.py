"""When questions are to be sent."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.replay.schedule import Schedule, as_fast_as_possible, fixed_rate, original_timing, poisson
from tests.replay.questions import make_asked, many

RATES = st.floats(0.01, 100_000)


def times(schedule: Schedule, number: int) -> list[float]:
    scheduled = list(schedule(many(number)))
    assert [asked.index for _, asked in scheduled] == list(range(number))
    return [seconds for seconds, _ in scheduled if seconds is not None]


@given(RATES, st.integers(0, 200))
def test_a_fixed_rate_does_not_drift(rate: float, number: int) -> None:
    assert times(fixed_rate(rate), number) == [position / rate for position in range(number)]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).map(sorted), st.floats(0.1, 100))
def test_original_timing_is_the_arrivals_over_the_speed(arrivals: list[float], speed: float) -> None:
    questions = [make_asked(index, arrival_seconds=arrival) for index, arrival in enumerate(arrivals)]
    assert [seconds for seconds, _ in original_timing(speed)(questions)] == [arrival / speed for arrival in arrivals]


@given(st.lists(st.floats(-10, 1e6), max_size=50))
def test_original_timing_never_goes_back(arrivals: list[float]) -> None:
    questions = [make_asked(index, arrival_seconds=arrival) for index, arrival in enumerate(arrivals)]
    scheduled = list(original_timing()(questions))
    assert [asked for _, asked in scheduled] == questions
    seconds = [seconds for seconds, _ in scheduled if seconds is not None]
    assert seconds == list(itertools.accumulate((max(0.0, arrival) for arrival in arrivals), max))


def test_poisson_gaps_are_exponential_and_repeat_by_their_seed() -> None:
    number, rate = 20_000, 50.0
    sent = times(poisson(rate, seed=3), number)
    gaps = [later - earlier for earlier, later in itertools.pairwise([0.0, *sent])]
    assert statistics.mean(gaps) == pytest.approx(1 / rate, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / rate, rel=0.03)
    assert sent == times(poisson(rate, seed=3), number)
    assert sent != times(poisson(rate, seed=4), number)


@given(RATES, st.integers(0, 2**32))
def test_poisson_times_ascend(rate: float, seed: int) -> None:
    sent = times(poisson(rate, seed), 30)
    assert sent == sorted(sent)
    assert sent[0] > 0


def test_as_fast_as_possible_means_no_time_at_all() -> None:
    assert [seconds for seconds, _ in as_fast_as_possible()(many(3))] == [None] * 3


@pytest.mark.parametrize(
    "schedule",
    [original_timing(), fixed_rate(5), poisson(5, 0), as_fast_as_possible()],
    ids=["original", "fixed", "poisson", "fast"],
)
def test_a_schedule_reads_no_further_than_it_is_asked(schedule: Schedule) -> None:
    """Logs are larger than memory."""
    questions = many(1_000_000)
    for _ in itertools.islice(schedule(questions), 10):
        pass
    assert next(questions).index == 10
