"""The measurements behind the deadline gate: what they say, and how fast they change their mind."""

import pytest

from recall_service.serving.fading_mean import FadingMean
from recall_service.serving.work_estimate import WorkEstimate


def test_values_that_agree_leave_no_doubt() -> None:
    mean = FadingMean(1.0)
    for step in range(20):
        mean.add(0.1, step * 0.01)
    assert mean.low == pytest.approx(0.1) == mean.high


def test_few_values_exceed_high_or_fall_below_low() -> None:
    mean = FadingMean(1.0)
    for step in range(100):
        mean.add((0.1, 0.3)[step % 2], step * 0.01)
    assert mean.low < 0.1 < 0.3 < mean.high


def test_the_newest_value_weighs_the_more_the_longer_there_was_none() -> None:
    after = []
    for pause in (0.01, 1.0, 10.0):
        mean = FadingMean(1.0)
        for step in range(50):
            mean.add(1.0, step * 0.001)
        mean.add(0.0, 0.05 + pause)
        after.append((mean.low + mean.high) / 2)
    assert after[0] > after[1] > after[2]
    assert after[0] == pytest.approx(7 / 8, abs=0.01)  # an eighth at least
    assert after[2] < 0.01


def test_confidence_fades_without_news() -> None:
    mean = FadingMean(1.0)
    assert mean.confidence(0.0) == 0
    for step in range(8):
        mean.add(1.0, step * 0.001)
    assert mean.confidence(0.01) == 1
    assert mean.confidence(5.0) == pytest.approx(8 / 2**5, abs=0.01)


def test_nothing_is_foreseen_without_measurements() -> None:
    estimate = WorkEstimate()
    assert estimate.wait_seconds(10_000, 1.0) == estimate.surprise_seconds(1.0) == 0
    assert estimate.least_service_seconds == estimate.most_service_seconds == 0


def test_work_drains_as_fast_as_while_more_was_waiting() -> None:
    """100 a step of 0.1 s, from one end with somebody waiting to the next; half as much while nobody waits tells
    nothing of how fast it could be."""
    estimate = WorkEstimate()
    for step in range(10):
        estimate.note_ended(50, step * 0.1, more_waits=False)
    assert estimate.wait_seconds(100, 1.0) == 0
    for step in range(10, 20):
        estimate.note_ended(100, step * 0.1, more_waits=True)
    assert estimate.wait_seconds(500, 1.9) == pytest.approx(0.5)
    estimate.note_ended(1, 30.0, more_waits=True)  # time between that nobody waited in would count otherwise
    slow = estimate.wait_seconds(500, 30.0)
    assert slow > 0.5
    fresh = WorkEstimate()
    fresh.note_ended(100, 0.0, more_waits=True)
    fresh.note_ended(100, 5.0, more_waits=False)
    fresh.note_ended(100, 6.0, more_waits=True)
    assert fresh.wait_seconds(500, 6.0) == 0


def test_an_engine_that_turns_slow_and_fast_again_is_known_for_it_within_a_second() -> None:
    estimate, now = WorkEstimate(), 0.0
    seen = {}
    for name, step_seconds in (("fast", 0.02), ("slow", 0.08), ("fast again", 0.02)):
        for _ in range(round(1.0 / step_seconds)):
            now += step_seconds
            estimate.note_ended(100, now, more_waits=True)
            estimate.note_service(5 * step_seconds, now)
        seen[name] = (estimate.wait_seconds(100, now), estimate.most_service_seconds)
    assert seen["fast"] == (pytest.approx(0.02), pytest.approx(0.1))
    assert 0.05 < seen["slow"][0] <= 0.08
    assert 0.3 < seen["slow"][1] < 0.6
    assert seen["fast again"][0] < 0.035
    assert seen["fast again"][1] < 0.15


def test_waits_longer_than_foreseen_are_expected_again_until_nothing_confirms_it() -> None:
    estimate = WorkEstimate()
    for step in range(20):
        estimate.note_wait(0.5, 0.1, step * 0.01)
    assert estimate.surprise_seconds(0.2) == pytest.approx(0.4, rel=0.1)
    assert estimate.surprise_seconds(3.0) < 0.01


def test_one_long_pause_is_forgotten_when_nothing_confirms_it() -> None:
    """As when a machine stands still for a minute: whoever would wait is refused then, so nothing confirms it."""
    estimate = WorkEstimate()
    for instant in (0.0, 0.1, 60.0):
        estimate.note_ended(100, instant, more_waits=True)
    assert estimate.wait_seconds(100, 60.5) > 50.0
    assert estimate.wait_seconds(100, 66.0) < 1.0


def test_a_search_given_up_tells_only_that_it_would_have_taken_longer() -> None:
    estimate = WorkEstimate()
    for step in range(10):
        estimate.note_service(0.1, step * 0.01)
    estimate.note_service_at_least(0.02, 0.1)
    assert estimate.least_service_seconds == pytest.approx(0.1) == estimate.most_service_seconds
    estimate.note_service_at_least(0.5, 0.1)
    assert estimate.most_service_seconds > 0.2
