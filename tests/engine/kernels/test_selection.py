"""Selection at fixed shapes in Triton's interpreter."""

import pytest
import torch

from tests.engine.kernels import cases_selection, cases_selection_parts

# The interpreter computes in numpy, which warns of NaN and of the log of 0 where a GPU does not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")


@pytest.mark.parametrize("case", cases_selection.CASES)
def test_selection(case: str) -> None:
    cases_selection.CASES[case](torch.device("cpu"))


@pytest.mark.parametrize("case", cases_selection_parts.CASES)
def test_parts(case: str) -> None:
    cases_selection_parts.CASES[case](torch.device("cpu"))
