"""Root-mean-square norm of rows, alone or of a residual sum, which is then written on the way.

One program per row: a row is read once and stays in registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Norm of states [n, size] by weight [size], both contiguous and of one dtype; see `Operations.norm`. One launch.

    Rounded as `norm_reference` is: to the dtype before the weight, and after it.
    """
    assert all(tensor.is_contiguous() for tensor in (states, weight))
    num_rows, size = states.shape
    normed = torch.empty_like(states)
    block = triton.next_power_of_2(size)
    _norm_kernel[(num_rows,)](states, weight, normed, size, eps, block=block, num_warps=_num_warps(block))
    return normed


def norm_reference(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same, in plain torch."""
    mean_square = states.float().pow(2).sum(-1, keepdim=True) / states.shape[-1]
    scaled = (states.float() / (mean_square + eps).sqrt()).to(states.dtype)
    return scaled * weight


def add_norm(states: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """States + update, [n, size] each and contiguous, and the norm of the rounded sum. One launch."""
    assert all(tensor.is_contiguous() for tensor in (states, update, weight))
    num_rows, size = states.shape
    sums, normed = torch.empty_like(states), torch.empty_like(states)
    block = triton.next_power_of_2(size)
    _add_norm_kernel[(num_rows,)](
        states, update, weight, sums, normed, size, eps, block=block, num_warps=_num_warps(block)
    )
    return sums, normed


def add_norm_reference(states: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same, in plain torch."""
    sums = states + update
    return sums, norm_reference(sums, weight, eps)


def _num_warps(block: int) -> int:
    """So that each thread holds 16 values of a row: two vectors of bf16."""
    return min(16, max(1, block // 512))


@triton.jit
def _normed(row, weight, size, eps):
    """fp32 values of a row, 0 beyond its size -> its norm in fp32, having been rounded to the weight's dtype once."""
    scale = tl.rsqrt(tl.sum(row * row, axis=0) / size + eps)
    return (row * scale).to(weight.dtype).to(tl.float32) * weight.to(tl.float32)


@triton.jit
def _norm_kernel(states, weight, normed, size, eps, block: tl.constexpr):
    columns = tl.arange(0, block)
    inside = columns < size
    places = tl.program_id(0).to(tl.int64) * size + columns
    row = tl.load(states + places, mask=inside, other=0.0).to(tl.float32)
    weights = tl.load(weight + columns, mask=inside, other=0.0)
    tl.store(normed + places, _normed(row, weights, size, eps).to(weights.dtype), mask=inside)


@triton.jit
def _add_norm_kernel(states, update, weight, sums, normed, size, eps, block: tl.constexpr):
    columns = tl.arange(0, block)
    inside = columns < size
    places = tl.program_id(0).to(tl.int64) * size + columns
    row = tl.load(states + places, mask=inside, other=0.0).to(tl.float32)
    added = tl.load(update + places, mask=inside, other=0.0).to(tl.float32)
    weights = tl.load(weight + columns, mask=inside, other=0.0)
    summed = (row + added).to(weights.dtype)
    tl.store(sums + places, summed, mask=inside)
    tl.store(normed + places, _normed(summed.to(tl.float32), weights, size, eps).to(weights.dtype), mask=inside)
