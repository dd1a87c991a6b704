"""What the deadline gate achieves over seconds of overload and of a slow engine, in simulated time."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.serving.simulated_engine import SimulatedEngine


def between(instants: list[float], start: float, end: float) -> int:
    return sum(start <= instant < end for instant in instants)


@settings(derandomize=True, max_examples=12, phases=[Phase.generate])  # to shrink would take minutes
@given(
    num_servers=st.integers(1, 48),
    service_seconds=st.floats(0.02, 0.15),
    budget=st.floats(4.0, 30.0),
    seed=st.integers(0, 10**6),
)
def test_at_ten_times_its_capacity_an_engine_works_for_those_in_time(
    num_servers: int, service_seconds: float, budget: float, seed: int
) -> None:
    """P27. budget: time to the deadline, in service times. Only the flood before the first measurement can be late."""
    engine = SimulatedEngine(num_servers, service_seconds, seed)
    engine.run(2.5, 10 * engine.capacity, budget * service_seconds)
    answered, late = (between(instants, 0.5, 2.5) for instants in (engine.answered, engine.late))
    assert answered >= 0.9 * 2.0 * engine.capacity
    assert late <= 0.02 * answered


@pytest.mark.parametrize("num_servers", [4, 16])
@pytest.mark.parametrize("load", [3, 10])
def test_what_it_takes_in_is_in_time_even_where_the_queue_leaves_little_of_it(num_servers: int, load: int) -> None:
    """Two and a half service times to the deadline: without what surprises teach, up to half would be late."""
    engine = SimulatedEngine(num_servers, 0.02, seed=0)
    engine.run(4.0, load * engine.capacity, 2.5 * 0.02, retries=3)
    answered, late = (between(instants, 0.5, 4.0) for instants in (engine.answered, engine.late))
    assert answered >= 0.85 * 3.5 * engine.capacity
    assert late <= 0.03 * answered


@pytest.mark.parametrize("num_servers", [8, 32])
@pytest.mark.parametrize("budget", [2.5, 6.0, 30.0])
def test_it_is_soon_itself_again_after_overload(num_servers: int, budget: float) -> None:
    engine = SimulatedEngine(num_servers, 0.05, seed=1)
    engine.run(2.0, 10 * engine.capacity, budget * 0.05)
    ended = engine.now
    engine.run(3.0, 0.5 * engine.capacity, budget * 0.05)
    assert between(engine.refused + engine.late, ended + 2.0, ended + 3.0) == 0
    assert between(engine.answered, ended + 2.0, ended + 3.0) > 0.4 * engine.capacity


@pytest.mark.parametrize("num_servers", [8, 32])
@pytest.mark.parametrize("budget", [2.5, 6.0, 30.0])
@pytest.mark.parametrize("slowed_seconds", [0.65, 3.0])
def test_a_slow_spell_does_not_outlast_itself(num_servers: int, budget: float, slowed_seconds: float) -> None:
    """Four times slower for a while at 70 % load, with clients that come back when they are told to."""
    slow_until = 1.5 + slowed_seconds
    engine = SimulatedEngine(num_servers, 0.05, seed=2, speed=lambda now: 0.25 if 1.5 <= now < slow_until else 1.0)
    engine.run(slow_until + 4.0, 0.7 * engine.capacity, budget * 0.05, retries=5)
    back = slow_until + 2.0
    answered, late = (between(instants, back, back + 2.0) for instants in (engine.answered, engine.late))
    assert answered >= 0.9 * 2.0 * 0.7 * engine.capacity
    assert late <= 0.01 * answered  # chance arrivals alone make as many


def test_while_it_is_slow_it_works_only_for_those_it_can_still_answer() -> None:
    """A quarter of its speed at 70 % of its load: three times what it can do; all but none is wasted after a second."""
    engine = SimulatedEngine(16, 0.05, seed=3, speed=lambda now: 0.25 if now >= 1.0 else 1.0)
    engine.run(5.0, 0.7 * engine.capacity, 20 * 0.05, retries=5)
    assert between(engine.answered, 2.0, 5.0) >= 0.9 * 3.0 * 0.25 * engine.capacity
    assert between(engine.late, 2.0, 5.0) <= 0.05 * between(engine.answered, 2.0, 5.0)


def test_what_is_inside_stays_bounded_and_all_of_it_comes_out() -> None:
    engine = SimulatedEngine(8, 0.05, seed=4)
    most = 0

    def watch(_: float) -> float:
        nonlocal most
        most = max(most, engine.gate.num_inside)
        return 1.0

    engine.speed = watch
    engine.run(2.0, 20 * engine.capacity, 1_000.0)  # deadlines that nobody misses: the queue alone refuses
    assert most == 8 + int(0.9 * 32)
    assert engine.late == []
    assert len(engine.answered) == pytest.approx(2.0 * engine.capacity, rel=0.1)
