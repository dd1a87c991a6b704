"""What lies between the matrix products of a decoder: norms, the rotation of heads, the gate of the MLP.

The decoder is handed an implementation and knows no other: plain torch here, fused kernels on a GPU. All of them round
where these models were trained to round, so that which one runs changes nothing but the time.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.kv_cache import KvTarget
from recall_service.engine.models.rope import rotate


class Heads(NamedTuple):
    """Queries [n, num_heads, head_dim], keys and values [n, num_kv_heads, head_dim]; not contiguous."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def split_heads(heads: Tensor, num_heads: int) -> Heads:
    """Views of heads [n, num_heads + 2 num_kv_heads, head_dim]."""
    num_kv_heads = (heads.shape[1] - num_heads) // 2
    return Heads(*heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1))


class Operations(Protocol):
    """Row by row, in the dtype of the model; n is any number of rows, and no row has a say in another's result."""

    def norm(self, states: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm of states [n, size] in fp32, rounded before weight [size] is applied."""

    def add_norm(self, states: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """States + update, rounded, [n, size]; and the norm of that sum."""

    def turn_and_store(
        self,
        heads: Tensor,
        head_norm: Tensor | None,
        eps: float,
        cosines: Tensor,
        sines: Tensor,
        num_heads: int,
        target: KvTarget,
    ) -> Heads:
        """Norm and rotate query and key heads, and write keys and values to the target.

        heads: [n, num_heads + 2 num_kv_heads, head_dim], contiguous; may be overwritten, and the result may be views
            of it.
        head_norm: [num_heads + num_kv_heads, head_dim], or None where the family has none.
        cosines, sines: [n, 1, head_dim], both halves the same.
        """

    def gate(self, gate_up: Tensor) -> Tensor:
        """Gate and up side by side, [n, 2 mlp_size] -> silu(gate) * up, [n, mlp_size]."""


class TorchOperations:
    """Operations in plain torch, on any device."""

    def norm(self, states: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `Operations`; any leading shape will do, and a weight per head."""
        wide = states.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        return weight * scaled.to(states.dtype)

    def add_norm(self, states: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See `Operations`."""
        states = states + update
        return states, self.norm(states, weight, eps)

    def turn_and_store(
        self,
        heads: Tensor,
        head_norm: Tensor | None,
        eps: float,
        cosines: Tensor,
        sines: Tensor,
        num_heads: int,
        target: KvTarget,
    ) -> Heads:
        """See `Operations`."""
        num_kv_heads = target.keys.shape[1]
        turning, values = heads.split((num_heads + num_kv_heads, num_kv_heads), dim=1)
        if head_norm is not None:
            turning = self.norm(turning, head_norm, eps)
        queries, keys = rotate(turning, cosines, sines).split((num_heads, num_kv_heads), dim=1)
        target.store(keys, values)
        return Heads(queries, keys, values)

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `Operations`."""
        gate, up = gate_up.chunk(2, -1)
        return functional.silu(gate) * up
