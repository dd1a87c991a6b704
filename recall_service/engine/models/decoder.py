"""Our own forward of a pre-norm decoder: the Qwen3, Qwen2 and Llama families.

The decoder knows matrices and positions. Where keys and values are kept, and who attends to what, is the business of
the attention that is handed in: the same forward runs prompts and beams. What lies between the matrix products is done
by the operations it was built with.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.kv_cache import KvTarget
from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.models.linear import Linear
from recall_service.engine.models.operations import Operations, TorchOperations
from recall_service.engine.models.rope import rotation_table


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
    """Says where the keys and values of the rows are kept, and lets the rows attend."""

    def target(self, layer: int) -> KvTarget:
        """Where the n rows of the batch keep their keys and values; they are written there before `attend`."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Queries [m, heads, head_dim], keys and values [n, kv_heads, head_dim] -> [m, heads, head_dim].

        m is n, or in the last layer the number of rows that `Decoder.hidden` was asked for. None need be contiguous.
        """


class Decoder:
    """Weights and the forward over a flat batch of tokens."""

    def __init__(self, config: DecoderConfig, weights: DecoderWeights, *, operations: Operations | None = None) -> None:
        self.config = config
        self._weights = weights
        self._operations = operations or TorchOperations()
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
        """Token ids and their positions, int64 [n] each -> states [n, hidden_size] after the final norm.

        wanted: int64 [m], the rows whose states are asked for, [m, hidden_size]; the last layer then does for the
        others only what their keys and values need.
        """
        layers, operations, eps = self._weights.layers, self._operations, self.config.norm_eps
        states = functional.embedding(tokens, self._weights.embedding)
        normed = operations.norm(states, layers[0].attention_norm, eps)
        turn = self._cosines[positions], self._sines[positions]
        next_norms = [*(layer.attention_norm for layer in layers[1:]), self._weights.final_norm]
        for index, (layer, next_norm) in enumerate(zip(layers, next_norms, strict=True)):
            rows = wanted if index == len(layers) - 1 else None
            attended = self._attention(index, layer, normed, turn, attention, rows)
            states = states if rows is None else states[rows]
            states, normed = operations.add_norm(states, attended, layer.mlp_norm, eps)
            updated = layer.down(operations.gate(layer.gate_up(normed)))
            states, normed = operations.add_norm(states, updated, next_norm, eps)
        return normed

    def logits(self, hidden: Tensor, first_token: int = 0, end_token: int | None = None) -> Tensor:
        """Hidden states [n, hidden_size] -> logits [n, tokens], in the model's dtype, of a range of the vocabulary."""
        return functional.linear(hidden, self._weights.head[first_token:end_token])

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        normed: Tensor,
        turn: tuple[Tensor, Tensor],
        attention: Attention,
        wanted: Tensor | None,
    ) -> Tensor:
        config = self.config
        heads = layer.qkv(normed).unflatten(-1, (-1, config.head_dim))  # [n, heads + 2 kv_heads, head_dim]
        queries, keys, values = self._operations.turn_and_store(
            heads, layer.head_norm, config.norm_eps, *turn, config.num_heads, attention.target(index)
        )
        attended = attention.attend(index, queries if wanted is None else queries[wanted], keys, values)
        return layer.out(attended.flatten(1))
