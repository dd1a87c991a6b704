import time
import tracemalloc

import pytest

from recall_service.serving.cache.answer_codec import decode, encode
from recall_service.serving.cache.local_tier import LocalTier, resident_bytes
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.query import ServedFrom, Timings
from tests.serving.cache_fakes import CountingObserver, make_answer, stored_part

ROOM_FOR_ONE = resident_bytes(make_answer())


class Clock:
    """`time.monotonic`, which goes on only when told: how long the test itself takes then changes nothing."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def __call__(self) -> float:
        return self._now

    def wait(self, seconds: float) -> None:
        self._now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def make_tier(max_bytes: int, observer: CountingObserver, seconds: float = 60.0) -> LocalTier:
    return LocalTier(max_bytes=max_bytes, time_to_live=TimeToLive(seconds, 0.0), observer=observer)


def test_gives_back_what_it_was_given_as_its_own(observer: CountingObserver) -> None:
    tier, answer = make_tier(1_000_000, observer), make_answer(with_steps=True)
    assert tier.get(b"key") is None
    tier.put(b"key", answer)
    back = tier.get(b"key")
    assert back is not None
    assert stored_part(back.answer) == stored_part(answer)
    assert back.answer.served_from is ServedFrom.LOCAL_CACHE
    assert (back.answer.rows_forwarded, back.answer.timings) == (0, Timings())
    assert observer.requests == {("local", "miss"): 1, ("local", "hit"): 1}


def test_a_fresh_answer_is_counted_by_whoever_gives_it(observer: CountingObserver, clock: Clock) -> None:
    tier = LocalTier(max_bytes=1_000_000, time_to_live=TimeToLive(20.0, 0.0, 60.0), observer=observer)
    assert tier.get_fresh(b"key") is None
    tier.put(b"key", make_answer(beam_width=7))
    fresh = tier.get_fresh(b"key")
    assert fresh is not None
    assert (fresh.beam_width, fresh.served_from) == (7, ServedFrom.LOCAL_CACHE)
    assert observer.requests == {("local", "hit"): 1}
    clock.wait(20.0)
    assert tier.get_fresh(b"key") is None
    assert observer.requests == {("local", "hit"): 1}
    kept = tier.get(b"key")
    assert kept is not None
    assert kept.is_stale
    assert observer.requests == {("local", "hit"): 1, ("local", "stale"): 1}


def test_the_least_recently_used_answer_leaves_first(observer: CountingObserver) -> None:
    tier = make_tier(2 * ROOM_FOR_ONE, observer)
    tier.put(b"first", make_answer())
    tier.put(b"second", make_answer())
    tier.get(b"first")
    tier.put(b"third", make_answer())
    assert [tier.get(key) is not None for key in (b"first", b"second", b"third")] == [True, False, True]


@pytest.mark.parametrize("max_bytes", [0, ROOM_FOR_ONE - 1])
def test_an_answer_over_the_bound_is_not_kept(max_bytes: int, observer: CountingObserver) -> None:
    tier = make_tier(max_bytes, observer)
    tier.put(b"key", make_answer())
    assert tier.get(b"key") is None


def test_an_answer_expires(observer: CountingObserver, clock: Clock) -> None:
    tier = make_tier(1_000_000, observer, seconds=20.0)
    tier.put(b"key", make_answer())
    assert tier.get(b"key") is not None
    clock.wait(20.0)
    assert tier.get(b"key") is None


def test_a_stale_answer_is_kept_for_a_while_and_says_so(observer: CountingObserver, clock: Clock) -> None:
    tier = LocalTier(max_bytes=1_000_000, time_to_live=TimeToLive(20.0, 0.0, 50.0), observer=observer)
    tier.put(b"key", make_answer())
    fresh = tier.get(b"key")
    assert fresh is not None
    assert not fresh.is_stale
    clock.wait(20.0)
    stale = tier.get(b"key")
    assert stale is not None
    assert stale.is_stale
    clock.wait(50.0)
    assert tier.get(b"key") is None
    assert observer.requests == {("local", "hit"): 1, ("local", "stale"): 1, ("local", "miss"): 1}


def test_another_tier_may_say_until_when_an_answer_is_fresh(observer: CountingObserver, clock: Clock) -> None:
    tier = make_tier(1_000_000, observer)
    tier.put(b"key", make_answer(), time.monotonic() + 20.0)
    assert tier.get(b"key") is not None
    clock.wait(20.0)
    assert tier.get(b"key") is None


@pytest.mark.parametrize("with_steps", [False, True], ids=["plain", "with_steps"])
@pytest.mark.parametrize("num_items", [1, 200])
def test_an_answer_takes_no_more_memory_than_it_is_counted_for(
    num_items: int, observer: CountingObserver, *, with_steps: bool
) -> None:
    """As Redis sends it, whose arrays are views: the largest kind."""
    value = encode(make_answer(num_items, with_steps=with_steps), bytes(32))
    tier = make_tier(1 << 30, observer)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(50):
            stored = decode(value, bytes(32))
            assert stored is not None
            tier.put(number.to_bytes(32, "big"), stored.answer)
        del stored
        used = (tracemalloc.get_traced_memory()[0] - before) / 50
    finally:
        tracemalloc.stop()
    kept = tier.get(bytes(32))
    assert kept is not None
    assert 0.5 * resident_bytes(kept.answer) < used <= resident_bytes(kept.answer)


def test_lives_differ_but_within_their_bounds() -> None:
    lives = [TimeToLive(100.0, 0.2).draw() for _ in range(200)]
    assert min(lives) > 80.0
    assert max(lives) <= 100.0
    assert max(lives) - min(lives) > 5.0
