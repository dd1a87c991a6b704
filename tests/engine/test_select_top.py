"""The exact top-W with the stated order of ties, and the log-sum-exp of ragged segments."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.selection import segment_logsumexp, select_top, select_top_reference

WIDTHS = [1, 7, 8, 9, 16, 31, 32, 33, 127, 128, 129, 255, 256, 257, 399, 400]
few_values = st.lists(st.sampled_from([0.0, -0.0, -1.0, -1.5, -2.0, -float("inf")]), max_size=60)


def assert_equals_reference(scores: torch.Tensor, width: int) -> None:
    chosen, best_pruned = select_top(scores, width)
    expected, expected_pruned = select_top_reference(scores, width)
    assert chosen.tolist() == expected.tolist()
    assert float(best_pruned) == float(expected_pruned)


@settings(derandomize=True, max_examples=200)
@given(values=few_values, width=st.integers(1, 70))
def test_many_ties_are_kept_in_the_order_they_came(values: list[float], width: int) -> None:
    """P10, lesson 11."""
    assert_equals_reference(torch.tensor(values), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("extra", [-1, 0, 1, 500], ids=["fewer", "as-many", "one-more", "many-more"])
def test_every_width_against_one_stable_sort(width: int, extra: int) -> None:
    """P11, lesson 6: with ties at the threshold and without."""
    generator = torch.Generator().manual_seed(width)
    scores = torch.randn(width + extra, generator=generator)
    assert_equals_reference(scores, width)
    assert_equals_reference(scores.mul(2).round(), width)


@pytest.mark.parametrize("value", [0.0, -3.25, -float("inf")])
def test_all_equal_keeps_the_first(value: float) -> None:
    """P10: the same one hundred times over."""
    for _ in range(100):
        chosen, best_pruned = select_top(torch.full((1000,), value), 400)
        assert chosen.tolist() == list(range(400))
        assert float(best_pruned) == value


def test_nothing_to_choose_from() -> None:
    chosen, best_pruned = select_top(torch.empty(0), 4)
    assert (chosen.tolist(), float(best_pruned)) == ([], -float("inf"))


@pytest.mark.parametrize("lengths", [[1], [3, 1, 2], [1, 500, 10_000], [65_536]], ids=str)
def test_segment_logsumexp_equals_torch(lengths: list[int]) -> None:
    """The widest codebook there is costs no more than one rounding."""
    values = 3 * torch.randn(sum(lengths), generator=torch.Generator().manual_seed(7))
    values[0] = 60.0
    segments = torch.repeat_interleave(torch.tensor(lengths))
    sums = segment_logsumexp(values, segments, torch.tensor(lengths))
    expected = torch.stack([part.double().logsumexp(0) for part in values.split(lengths)])
    torch.testing.assert_close(sums.double(), expected, atol=4e-6, rtol=0)


def test_segment_logsumexp_of_impossible_and_faulty_segments() -> None:
    """All -inf stays -inf; NaN and +inf come out as something that is not a number one could use."""
    inf = float("inf")
    values = torch.tensor([-inf, -inf, -inf, 1.0, torch.nan, 0.0, inf, 0.0])
    sums = segment_logsumexp(values, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]), torch.tensor([2, 2, 2, 2])).tolist()
    assert sums[:2] == [-inf, 1.0]
    assert not any(value < inf for value in sums[2:])


def test_segment_logsumexp_adds_up_as_many_equal_terms_as_a_codebook_has() -> None:
    """Added one after another in fp32, these lose 4e-4: forty times what a token may."""
    values = torch.full((65_536,), -0.3)
    values[0] = 0.0
    total = segment_logsumexp(values, torch.zeros(65_536, dtype=torch.int64), torch.tensor([65_536]))
    torch.testing.assert_close(total[0].double(), values.double().logsumexp(0), atol=1e-6, rtol=0)


@settings(derandomize=True, max_examples=100)
@given(values=st.lists(st.floats(-200, 200, width=32), min_size=1, max_size=50))
def test_segment_logsumexp_is_never_below_its_greatest_value(values: list[float]) -> None:
    """The certificate rests on it: no log-probability may be positive, not even by rounding."""
    tensor = torch.tensor(values)
    total = segment_logsumexp(tensor, torch.zeros(len(values), dtype=torch.int64), torch.tensor([len(values)]))
    assert float(total) >= max(values)
