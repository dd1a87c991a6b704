"""Our own forward of a pre-norm decoder: the Qwen3, Qwen2 and Llama families.

The decoder knows matrices and positions. Where keys and values are kept, and who attends to what, is the business of
the attention that is handed in: the same forward runs prompts and beams.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.models.linear import Linear
from recall_service.engine.models.rope import rotate, rotation_table


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """One layer. Queries, keys and values are one product, and so are gate and up."""

    attention_norm: Tensor
    qkv: Linear
    head_norm: Tensor | None  # [heads + kv_heads, head_dim]: of the families that have one
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True, eq=False)
class DecoderWeights:
    """embedding and head: [vocab_size, hidden_size], the same tensor when tied."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor


class Attention(Protocol):
    """Keeps the keys and values of the rows, and lets the rows attend."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Queries [m, heads, head_dim], keys and values [n, kv_heads, head_dim] -> [m, heads, head_dim].

        m is n, or in the last layer the number of rows that `Decoder.hidden` was asked for.
        """


class Decoder:
    """Weights and the forward over a flat batch of tokens."""

    def __init__(self, config: DecoderConfig, weights: DecoderWeights) -> None:
        self.config = config
        self._weights = weights
        table = rotation_table(config.rope, config.head_dim, config.max_positions, self.dtype)
        self._cosines, self._sines = (part.to(self.device) for part in table)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, activations and KV."""
        return self._weights.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self._weights.embedding.device

    def hidden(self, tokens: Tensor, positions: Tensor, attention: Attention, wanted: Tensor | None = None) -> Tensor:
        """Token ids and their positions, int64 [n] each -> states [n, hidden_size] before the final norm.

        wanted: int64 [m], the rows whose states are asked for, [m, hidden_size]; the last layer then does for the
        others only what their keys and values need.
        """
        states = functional.embedding(tokens, self._weights.embedding)
        cosines, sines = self._cosines[positions], self._sines[positions]
        last = len(self._weights.layers) - 1
        for index, layer in enumerate(self._weights.layers):
            rows = wanted if index == last else None
            attended = self._attention(index, layer, states, cosines, sines, attention, rows)
            states = (states if rows is None else states[rows]) + attended
            states = states + self._mlp(layer, states)
        return states

    def logits(self, hidden: Tensor, first_token: int = 0, end_token: int | None = None) -> Tensor:
        """Hidden states [n, hidden_size] -> logits [n, tokens], in the model's dtype, of a range of the vocabulary."""
        head = self._weights.head[first_token:end_token]
        return functional.linear(self._norm(hidden, self._weights.final_norm), head)

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        states: Tensor,
        cosines: Tensor,
        sines: Tensor,
        attention: Attention,
        wanted: Tensor | None,
    ) -> Tensor:
        config = self.config
        qkv = layer.qkv(self._norm(states, layer.attention_norm))
        heads = qkv.unflatten(-1, (-1, config.head_dim))  # [n, heads + 2 kv_heads, head_dim]
        turning, values = heads.split((config.num_heads + config.num_kv_heads, config.num_kv_heads), dim=1)
        if layer.head_norm is not None:
            turning = self._norm(turning, layer.head_norm)
        queries, keys = rotate(turning, cosines, sines).split((config.num_heads, config.num_kv_heads), dim=1)
        attended = attention.attend(index, queries if wanted is None else queries[wanted], keys, values)
        return layer.out(attended.flatten(1))

    def _mlp(self, layer: LayerWeights, states: Tensor) -> Tensor:
        gate, up = layer.gate_up(self._norm(states, layer.mlp_norm)).chunk(2, -1)
        return layer.down(functional.silu(gate) * up)

    def _norm(self, states: Tensor, weight: Tensor) -> Tensor:
        """Root-mean-square norm in fp32, rounded before the weight is applied, as these models were trained."""
        wide = states.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.norm_eps)
        return weight * scaled.to(states.dtype)
