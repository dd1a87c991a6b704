"""Who attends to what: a prompt to itself, a beam to its prompt and its own ancestors.

No mask is ever built for beams: each row reads exactly the slots it descends from.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.kv_cache import KvStorage


class PromptSpan(NamedTuple):
    """One prompt in a flat batch: its rows, and the context places int64 [len(rows)] its KV goes to."""

    rows: slice
    places: Tensor


@dataclass(frozen=True, slots=True)
class PromptAttention:
    """Causal attention of each prompt over itself; its KV is written to context pages on the way."""

    context: KvStorage
    spans: list[PromptSpan]

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See `decoder.Attention`."""
        attended = torch.empty_like(queries)
        for rows, places in self.spans:
            self.context.write(layer, places, keys[rows], values[rows])
            query, key, value = (part[rows].transpose(0, 1) for part in (queries, keys, values))  # [heads, n, dim]
            mixed = functional.scaled_dot_product_attention(
                query[None], key[None], value[None], is_causal=True, enable_gqa=True
            )
            attended[rows] = mixed[0].transpose(0, 1)
        return attended


class BeamSpan(NamedTuple):
    """The rows of one request: where its prompt lies, int64 [context_len], and each row's slots, int64 [rows, depth].

    The last slot of a row is its own: the place its KV is written to in this step.
    """

    rows: slice
    places: Tensor
    ancestors: Tensor


@dataclass(frozen=True, slots=True)
class BeamAttention:
    """All rows of a request over its context as one matrix product per KV head, and over their own ancestors."""

    context: KvStorage
    slots: KvStorage
    spans: list[BeamSpan]

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See `decoder.Attention`."""
        attended = torch.empty_like(queries)
        for rows, places, ancestors in self.spans:
            self.slots.write(layer, ancestors[:, -1], keys[rows], values[rows])
            context_kv = self.context.read(layer, places)  # [context, kv_heads, dim]
            beam_kv = self.slots.read(layer, ancestors)  # [rows, depth, kv_heads, dim]
            attended[rows] = attend_beams(queries[rows], *context_kv, *beam_kv)
        return attended


def attend_beams(
    queries: Tensor, context_keys: Tensor, context_values: Tensor, beam_keys: Tensor, beam_values: Tensor
) -> Tensor:
    """One softmax over the shared context and each row's own part.

    queries: [rows, heads, dim]; context_*: [context, kv_heads, dim]; beam_*: [rows, depth, kv_heads, dim].
    Returns [rows, heads, dim]. The softmax is in fp32.
    """
    num_rows, num_heads, dim = queries.shape
    context_len, num_kv_heads = context_keys.shape[:2]
    group = num_heads // num_kv_heads
    grouped = (queries * dim**-0.5).view(num_rows, num_kv_heads, group, dim)

    by_head = grouped.transpose(0, 1).reshape(num_kv_heads, num_rows * group, dim)
    context_scores = by_head @ context_keys.permute(1, 2, 0)  # [kv_heads, rows * group, context]
    context_scores = context_scores.view(num_kv_heads, num_rows, group, context_len).transpose(0, 1)
    beam_scores = grouped @ beam_keys.permute(0, 2, 3, 1)  # [rows, kv_heads, group, depth]

    weights = torch.cat([context_scores, beam_scores], dim=-1).softmax(-1, dtype=torch.float32).to(queries.dtype)
    context_weights, beam_weights = weights.split((context_len, beam_scores.shape[-1]), dim=-1)
    context_weights = context_weights.transpose(0, 1).reshape(num_kv_heads, num_rows * group, context_len)
    context_mix = context_weights @ context_values.transpose(0, 1)  # [kv_heads, rows * group, dim]
    beam_mix: Tensor = beam_weights @ beam_values.transpose(1, 2)  # [rows, kv_heads, group, dim]
    mixed: Tensor = context_mix.view(num_kv_heads, num_rows, group, dim).transpose(0, 1) + beam_mix
    return mixed.flatten(1, 2)
