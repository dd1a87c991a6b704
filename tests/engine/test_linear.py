"""Weights in oneDNN's blocks multiply as plain ones do."""

import pytest
import torch

from recall_service.engine.models.linear import Linear


@pytest.mark.parametrize("num_rows", [1, 7, 100, 300])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_packed_equals_plain_up_to_rounding(num_rows: int, with_bias: bool, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    weight = torch.randn(96, 64, generator=generator).to(dtype)
    bias = torch.randn(96, generator=generator).to(dtype) if with_bias else None
    inputs = torch.randn(num_rows, 64, generator=generator).to(dtype)
    packed, plain = Linear(weight, bias, pack=True)(inputs), Linear(weight, bias, pack=False)(inputs)
    assert packed.dtype == dtype
    exact = inputs.double() @ weight.double().T + (0 if bias is None else bias.double())
    for product in (packed, plain):
        torch.testing.assert_close(product.double(), exact, atol=1e-4 if dtype == torch.float32 else 0.2, rtol=1e-2)


def test_a_packed_weight_is_kept_once() -> None:
    weight = torch.randn(8, 8).bfloat16()
    linear = Linear(weight, None, pack=True)
    assert linear.weight is not weight or not torch.backends.mkldnn.is_available()
    assert Linear(weight, None, pack=False).weight is weight
    assert Linear(weight.float(), None, pack=True).weight.dtype == torch.float32
