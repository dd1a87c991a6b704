"""silu(gate) * up, of the two halves that one product gives side by side."""

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def gate(gate_up: Tensor) -> Tensor:
    """gate_up [n, 2 mlp_size], contiguous -> [n, mlp_size]; silu is computed in fp32 and rounded. One launch."""
    assert gate_up.is_contiguous()
    num_rows, mlp_size = gate_up.shape[0], gate_up.shape[1] // 2
    gated = gate_up.new_empty(num_rows, mlp_size)
    _gate_kernel[(num_rows, triton.cdiv(mlp_size, _BLOCK))](gate_up, gated, mlp_size, block=_BLOCK, num_warps=4)
    return gated


def gate_reference(gate_up: Tensor) -> Tensor:
    """The same, in plain torch."""
    mlp_size = gate_up.shape[1] // 2
    gates, ups = gate_up[:, :mlp_size], gate_up[:, mlp_size:]
    return (gates.float() * gates.float().sigmoid()).to(gate_up.dtype) * ups


@triton.jit
def _gate_kernel(gate_up, gated, mlp_size, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < mlp_size
    gates = tl.load(gate_up + row * (2 * mlp_size) + columns, mask=inside, other=0.0)
    ups = tl.load(gate_up + row * (2 * mlp_size) + mlp_size + columns, mask=inside, other=0.0)
    wide = gates.to(tl.float32)
    decay = tl.exp(-tl.abs(wide))  # of neither sign does it overflow
    silu = (wide * tl.where(wide < 0, decay, 1.0) / (1.0 + decay)).to(gates.dtype)
    tl.store(gated + row * mlp_size + columns, (silu.to(tl.float32) * ups.to(tl.float32)).to(gates.dtype), mask=inside)
