import logging

import pytest

from recall_service.serving.cache.breaker import Breaker
from tests.serving.cache_fakes import CountingObserver


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(observer: CountingObserver, clock: Clock) -> Breaker:
    return Breaker(failures=3, open_seconds=5.0, observer=observer, clock=clock)


def fail(breaker: Breaker, clock: Clock, times: int) -> None:
    """Calls, one after the other, that all fail."""
    for _ in range(times):
        clock.now += 0.001
        breaker.failed(TimeoutError("redis://:hunter2@host"), admitted=clock.now)


def test_opens_after_failures_in_a_row_and_says_so_once(
    breaker: Breaker, clock: Clock, observer: CountingObserver
) -> None:
    fail(breaker, clock, 2)
    assert breaker.admit() is not None
    fail(breaker, clock, 2)
    assert breaker.admit() is None
    assert observer.breaker == [True]


def test_a_success_between_failures_starts_the_count_anew(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, clock, 2)
    breaker.succeeded()
    fail(breaker, clock, 2)
    assert breaker.admit() is not None


def test_one_probe_after_a_while_closes_it(breaker: Breaker, clock: Clock, observer: CountingObserver) -> None:
    fail(breaker, clock, 3)
    clock.now += 5.0
    assert [breaker.admit() is None, breaker.admit() is None] == [False, True]
    breaker.succeeded()
    assert breaker.admit() is not None
    assert observer.breaker == [True, False]


def test_a_failed_probe_starts_the_wait_anew(breaker: Breaker, clock: Clock, observer: CountingObserver) -> None:
    fail(breaker, clock, 3)
    clock.now += 5.0
    assert breaker.admit() is not None
    clock.now += 1.0
    fail(breaker, clock, 1)
    clock.now += 4.5
    assert breaker.admit() is None
    clock.now += 0.5
    assert breaker.admit() is not None
    assert observer.breaker == [True]


def test_a_probe_that_never_reports_is_followed_by_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, clock, 3)
    clock.now += 5.0
    assert breaker.admit() is not None
    clock.now += 5.0
    assert breaker.admit() is not None


def test_logs_the_kind_of_failure_and_no_text_of_it(
    breaker: Breaker, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        fail(breaker, clock, 3)
    assert "TimeoutError" in caplog.text
    assert "hunter2" not in caplog.text


def test_failures_of_calls_under_way_together_count_as_one(breaker: Breaker, clock: Clock) -> None:
    for _ in range(5):
        breaker.failed(TimeoutError(), admitted=clock.now)
    assert breaker.admit() is not None
    fail(breaker, clock, 2)
    assert breaker.admit() is None
