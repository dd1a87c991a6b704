"""Who attends to what: a prompt to itself, a beam to its prompt and its own ancestors.

No mask is ever built for beams: each row reads exactly the slots it descends from.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.kv_cache import KvStorage, KvTarget

_QUERY_BLOCK = 64
_TILE_BYTES = 2 << 20


class PromptSpan(NamedTuple):
    """One prompt in a flat batch: the rows of its new tokens, and where all of it lies, int64 [prefix_len + len(rows)].

    The KV of the first prefix_len tokens is there already; that of the new ones goes to the places behind.
    """

    rows: slice
    places: Tensor
    prefix_len: int = 0


@dataclass(frozen=True)
class PromptAttention:
    """Causal attention of each prompt over itself; its KV is kept in context pages. Spans lie in the order of rows.

    Where there are fewer queries than keys, they are those of the last token of each prompt.
    """

    context: KvStorage
    spans: list[PromptSpan]

    @cached_property
    def _new_places(self) -> Tensor:
        return torch.cat([places[prefix_len:] for _, places, prefix_len in self.spans])

    def target(self, layer: int) -> KvTarget:
        """See `decoder.Attention`."""
        return self.context.target(layer, self._new_places)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """See `decoder.Attention`."""
        attended = torch.empty_like(queries)
        for index, (rows, places, prefix_len) in enumerate(self.spans):
            kv = self.context.read(layer, places) if prefix_len else (keys[rows], values[rows])
            asked = rows if len(queries) == len(keys) else slice(index, index + 1)
            causally = attend_causally_fused if queries.is_cuda else attend_causally
            attended[asked] = causally(queries[asked], *kv)
        return attended


def attend_causally(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last `len(queries)` positions of a sequence attend to all that is not after them.

    queries: [new, heads, dim]; keys, values: [length, kv_heads, dim], length >= new. Returns [new, heads, dim].
    Blocks of queries see only the keys up to their own end, so half of the square is never computed. Measured twice as
    fast as scaled_dot_product_attention on CPUs, from 256 positions on.
    """
    num_new, length = len(queries), len(keys)
    group = queries.shape[1] // keys.shape[1]
    by_head = queries.unflatten(1, (-1, group)).permute(1, 2, 0, 3)
    keys_by_head, values_by_head = keys.permute(1, 2, 0).contiguous(), values.transpose(0, 1).contiguous()
    attended = []
    for first in range(0, num_new, _QUERY_BLOCK):
        block = by_head[:, :, first : first + _QUERY_BLOCK]  # [kv_heads, group, block, dim]
        end = length - num_new + first + block.shape[2]
        scores = _scaled_scores(block.flatten(1, 2), keys_by_head[:, :, :end]).unflatten(1, (group, -1))
        block_scores = scores[..., end - block.shape[2] :]  # keys of the block itself: the only ones that may be later
        block_scores += torch.full(block_scores.shape[-2:], -torch.inf, device=scores.device).triu(1)
        weights = scores.softmax(-1)
        mixed = weights.flatten(1, 2) @ values_by_head[:, :end]
        attended.append(mixed.unflatten(1, (group, -1)).permute(2, 0, 1, 3).flatten(1, 2))
    return torch.cat(attended)


def attend_causally_fused(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same by torch's fused kernels: one launch, which on a GPU counts for more than the half of the square."""
    from torch.nn.attention.bias import causal_lower_right  # brings the compiler and triton, of no use to a CPU

    queries, keys, values = (part.transpose(0, 1)[None] for part in (queries, keys, values))
    mask = causal_lower_right(queries.shape[2], keys.shape[2])
    attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
    return attended[0].transpose(0, 1)


class BeamSpan(NamedTuple):
    """The rows of one request: where its prompt lies, int64 [context_len], and each row's slots, int64 [rows, depth].

    The last slot of a row is its own: where its KV goes in this step.
    """

    rows: slice
    places: Tensor
    ancestors: Tensor


@dataclass(frozen=True)
class BeamAttention:
    """All rows of a request over its context as one matrix product per KV head, and over their own ancestors.

    Spans lie in the order of rows.
    """

    context: KvStorage
    slots: KvStorage
    spans: list[BeamSpan]

    @cached_property
    def _own_slots(self) -> Tensor:
        return torch.cat([ancestors[:, -1] for _, _, ancestors in self.spans])

    def target(self, layer: int) -> KvTarget:
        """See `decoder.Attention`."""
        return self.slots.target(layer, self._own_slots)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002
        """See `decoder.Attention`; keys and values are read back from the slots, where those of the ancestors are."""
        attended = torch.empty_like(queries)
        for rows, places, ancestors in self.spans:
            context_kv = self.context.read_by_head(layer, places)  # [kv_heads, context, dim]
            beam_kv = self.slots.read_by_head(layer, ancestors)  # [kv_heads, rows, depth, dim]
            attended[rows] = attend_beams(queries[rows], *context_kv, *beam_kv)
        return attended


def attend_beams(
    queries: Tensor, context_keys: Tensor, context_values: Tensor, beam_keys: Tensor, beam_values: Tensor
) -> Tensor:
    """One softmax over the shared context and each row's own part.

    queries: [rows, heads, dim]; context_*: [kv_heads, context, dim]; beam_*: [kv_heads, rows, depth, dim].
    Returns [rows, heads, dim]. Heads are taken as many at a time as keep their scores in the processor's cache: at 400
    rows over 1,000 positions that is three times as fast as all at once. The own part is too thin for matrix products.
    """
    num_rows, dim = len(queries), queries.shape[-1]
    num_kv_heads, context_len = context_keys.shape[:2]
    depth = beam_keys.shape[2]
    by_head = queries.unflatten(1, (num_kv_heads, -1)).transpose(0, 1).contiguous()  # [kv_heads, rows, group, dim]
    attended = torch.empty_like(by_head)
    row_bytes = by_head.shape[2] * (context_len + depth) * queries.element_size()
    heads_at_once = max(1, _TILE_BYTES // (num_rows * row_bytes))
    for first in range(0, num_kv_heads, heads_at_once):
        heads = slice(first, first + heads_at_once)
        tile = by_head[heads]  # [heads, rows, group, dim]
        scores = queries.new_empty(*tile.shape[:3], context_len + depth)
        _scaled_scores(tile.flatten(1, 2), context_keys[heads].mT, out=scores[..., :context_len].flatten(1, 2))
        for step in range(depth):
            own = (tile * beam_keys[heads, :, step, None]).sum(-1, dtype=torch.float32)
            scores[..., context_len + step] = own * dim**-0.5
        weights = scores.softmax(-1)
        mixed = (weights[..., :context_len].flatten(1, 2) @ context_values[heads]).unflatten(1, tile.shape[1:3])
        for step in range(depth):
            mixed.addcmul_(weights[..., context_len + step, None], beam_values[heads, :, step, None])
        attended[heads] = mixed
    return attended.transpose(0, 1).flatten(1, 2)


def _scaled_scores(queries: Tensor, keys: Tensor, out: Tensor | None = None) -> Tensor:
    """Queries [batch, n, dim] @ keys [batch, dim, m] / sqrt(dim), rounded once: scaled queries would be rounded twice.

    The softmax over it computes in fp32 whatever the dtype, and rounds its weights; a pass in fp32 of our own would
    change nothing but the time.
    """
    if out is None:
        out = queries.new_empty(*queries.shape[:2], keys.shape[-1])
    return torch.baddbmm(out, queries, keys, beta=0, alpha=queries.shape[-1] ** -0.5, out=out)
