"""Norm and rotation of heads, and the write of keys and values to where they are kept: one pass over one product.

One program per row and block of heads. Rotation is in the half-split convention, as in `models.rope`, so a program
holds the first and the second half of its heads as two tiles.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from recall_service.engine.kv_cache import KvTarget
from recall_service.engine.models.operations import Heads, split_heads

_HEADS_AT_ONCE = 16


def turn_and_store(
    heads: Tensor,
    head_norm: Tensor | None,
    eps: float,
    cosines: Tensor,
    sines: Tensor,
    num_heads: int,
    target: KvTarget,
) -> Heads:
    """See `Operations.turn_and_store`; heads are overwritten, and the result is views of them. One launch.

    Rounded as `turn_and_store_reference` is, step by step. In fp32 a product may be fused with the sum that follows.
    Rows may share a place: what lies there then is of any of them.
    """
    num_rows, all_heads, dim = heads.shape
    assert all(tensor.is_contiguous() for tensor in (heads, cosines, sines))
    assert head_norm is None or head_norm.is_contiguous()
    place_stride = target.keys.stride(0)
    assert target.keys.stride() == target.values.stride() == (place_stride, dim, 1)
    heads_at_once = min(_HEADS_AT_ONCE, triton.next_power_of_2(all_heads))
    _turn_and_store_kernel[(num_rows, triton.cdiv(all_heads, heads_at_once))](
        heads,
        head_norm,
        cosines,
        sines,
        target.keys,
        target.values,
        target.places,
        target.places.stride(0),
        place_stride,
        num_heads,
        (all_heads - num_heads) // 2,
        eps,
        dim=dim,
        heads_at_once=heads_at_once,
        block=triton.next_power_of_2(dim // 2),
        has_norm=head_norm is not None,
        num_warps=4,
    )
    return split_heads(heads, num_heads)


def turn_and_store_reference(
    heads: Tensor,
    head_norm: Tensor | None,
    eps: float,
    cosines: Tensor,
    sines: Tensor,
    num_heads: int,
    target: KvTarget,
) -> Heads:
    """The same, in plain torch, head by head."""
    half = heads.shape[2] // 2
    queries, keys, values = split_heads(heads, num_heads)
    for index in range(num_heads + keys.shape[1]):
        head = heads[:, index]
        if head_norm is not None:
            mean_square = head.float().pow(2).sum(-1, keepdim=True) / (2 * half)
            head = (head.float() / (mean_square + eps).sqrt()).to(heads.dtype) * head_norm[index]
        swapped = torch.cat([-head[:, half:], head[:, :half]], dim=-1)
        turned = (head * cosines[:, 0]).float() + swapped.float() * sines[:, 0].float()
        heads[:, index] = turned.to(heads.dtype)
    for row, place in enumerate(target.places.tolist()):
        target.keys[place] = keys[row]
        target.values[place] = values[row]
    return Heads(queries, keys, values)


@triton.jit(do_not_specialize=["row_stride"])  # it grows with every step of a beam
def _turn_and_store_kernel(
    heads,
    head_norm,
    cosines,
    sines,
    kept_keys,
    kept_values,
    places,
    row_stride,
    place_stride,
    num_heads,
    num_kv_heads,
    eps,
    dim: tl.constexpr,
    heads_at_once: tl.constexpr,
    block: tl.constexpr,
    has_norm: tl.constexpr,
):
    half: tl.constexpr = dim // 2
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * heads_at_once + tl.arange(0, heads_at_once)[:, None]  # [heads_at_once, 1]
    column = tl.arange(0, block)[None, :]  # [1, block]
    num_turning = num_heads + num_kv_heads
    in_half = column < half
    inside = (head < num_turning + num_kv_heads) & in_half
    turning = (head < num_turning) & in_half
    is_key = (head >= num_heads) & turning
    is_value = (head >= num_turning) & inside

    own = heads + row * ((num_turning + num_kv_heads) * dim) + head * dim + column
    first = tl.load(own, mask=inside, other=0.0)
    second = tl.load(own + half, mask=inside, other=0.0)
    wide_first, wide_second = first.to(tl.float32), second.to(tl.float32)
    if has_norm:
        mean_square = tl.sum(wide_first * wide_first + wide_second * wide_second, axis=1) / dim
        scale = tl.rsqrt(mean_square + eps)[:, None]
        weights = head_norm + head * dim + column
        first_weight = tl.load(weights, mask=turning, other=0.0).to(tl.float32)
        second_weight = tl.load(weights + half, mask=turning, other=0.0).to(tl.float32)
        wide_first = ((wide_first * scale).to(first.dtype).to(tl.float32) * first_weight).to(first.dtype)
        wide_second = ((wide_second * scale).to(first.dtype).to(tl.float32) * second_weight).to(first.dtype)
        wide_first, wide_second = wide_first.to(tl.float32), wide_second.to(tl.float32)
    cosine = tl.load(cosines + row * dim + column, mask=in_half, other=0.0).to(tl.float32)
    sine = tl.load(sines + row * dim + column, mask=in_half, other=0.0).to(tl.float32)
    turned_first = (wide_first * cosine).to(first.dtype).to(tl.float32) - wide_second * sine
    turned_second = (wide_second * cosine).to(first.dtype).to(tl.float32) + wide_first * sine
    turned_first, turned_second = turned_first.to(first.dtype), turned_second.to(first.dtype)

    tl.store(own, turned_first, mask=turning)
    tl.store(own + half, turned_second, mask=turning)
    place = tl.load(places + row * row_stride) * place_stride
    kept = kept_keys + place + (head - num_heads) * dim + column
    tl.store(kept, turned_first, mask=is_key)
    tl.store(kept + half, turned_second, mask=is_key)
    kept = kept_values + place + (head - num_turning) * dim + column
    tl.store(kept, first, mask=is_value)
    tl.store(kept + half, second, mask=is_value)
