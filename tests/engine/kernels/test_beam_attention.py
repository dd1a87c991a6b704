"""Beam attention in Triton's interpreter."""

import pytest
import torch

from tests.engine.kernels.cases_beam_attention import CASES


@pytest.mark.parametrize("case", CASES)
def test_beam_attention(case: str) -> None:
    CASES[case](torch.device("cpu"))
