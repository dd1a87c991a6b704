"""Which questions are given up, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.replay.cancellation import Cancellation


def draws(share: float, seed: int, number: int, timeout_seconds: float = 1.0) -> list[float | None]:
    cancellation = Cancellation(share, seed)
    return [cancellation.draw(timeout_seconds) for _ in range(number)]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_is_the_one_asked_for(share: float) -> None:
    drawn = [draw for draw in draws(share, 7, 4_000) if draw is not None]
    assert len(drawn) == pytest.approx(4_000 * share, abs=100 * (0 < share < 1))


@given(st.floats(0.001, 1_000), st.integers())
def test_a_question_is_given_up_within_its_timeout(timeout_seconds: float, seed: int) -> None:
    assert all(draw is not None and 0 <= draw <= timeout_seconds for draw in draws(1.0, seed, 20, timeout_seconds))


def test_any_part_of_the_timeout_is_as_likely_as_another() -> None:
    drawn = sorted(draw for draw in draws(1.0, 3, 4_000) if draw is not None)
    assert drawn == pytest.approx([index / 4_000 for index in range(4_000)], abs=0.04)


def test_the_same_seed_chooses_the_same_questions_whatever_their_timeouts() -> None:
    assert draws(0.5, 1, 50) == draws(0.5, 1, 50)
    assert draws(0.5, 1, 50) != draws(0.5, 2, 50)
    chosen = [draw is None for draw in draws(0.5, 1, 50)]
    assert chosen == [draw is None for draw in draws(0.5, 1, 50, timeout_seconds=9.0)]
