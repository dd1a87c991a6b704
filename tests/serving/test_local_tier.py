import time

import pytest

from recall_service.serving.local_tier import LocalTier, resident_bytes
from recall_service.serving.query import ServedFrom, Timings
from recall_service.serving.time_to_live import TimeToLive
from tests.serving.cache_fakes import CountingObserver, make_answer, stored_part

ROOM_FOR_ONE = resident_bytes(make_answer())


def make_tier(max_bytes: int, observer: CountingObserver, seconds: float = 60.0) -> LocalTier:
    return LocalTier(max_bytes=max_bytes, time_to_live=TimeToLive(seconds, 0.0), observer=observer)


def test_gives_back_what_it_was_given_as_its_own(observer: CountingObserver) -> None:
    tier, answer = make_tier(1_000_000, observer), make_answer(with_steps=True)
    assert tier.get(b"key") is None
    tier.put(b"key", answer)
    back = tier.get(b"key")
    assert back is not None
    assert stored_part(back) == stored_part(answer)
    assert (back.served_from, back.rows_forwarded, back.timings) == (ServedFrom.LOCAL_CACHE, 0, Timings())
    assert observer.requests == {("local", "miss"): 1, ("local", "hit"): 1}


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


def test_an_answer_expires(observer: CountingObserver) -> None:
    tier = make_tier(1_000_000, observer, seconds=0.02)
    tier.put(b"key", make_answer())
    assert tier.get(b"key") is not None
    time.sleep(0.025)
    assert tier.get(b"key") is None


def test_lives_differ_but_within_their_bounds() -> None:
    lives = [TimeToLive(100.0, 0.2).draw() for _ in range(200)]
    assert min(lives) > 80.0
    assert max(lives) <= 100.0
    assert max(lives) - min(lives) > 5.0
