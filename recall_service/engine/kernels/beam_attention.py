"""Attention of beams: all rows of a request over its context, and each row over its own ancestors, in one softmax.

The rows that share a context are tiles of one matrix product; the ancestors of each are gathered. Reads the context
through the page table and the ancestors through the slot table; knows no layers, and of requests only their number.
Shapes alone decide what is launched, never how long a context is or which rows live.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

HEAD_SIZES = (16, 32, 64, 128)
_PROGRAMS_WANTED = 132  # one for each multiprocessor of an H100 or H200: registers let no second large tile in
_SPLIT_LEN = 256  # positions that are worth a program of their own, and the merge of what it found


def beam_attention(
    queries: Tensor,
    context_keys: Tensor,
    context_values: Tensor,
    page_table: Tensor,
    page_len: int,
    context_lens: Tensor,
    slot_keys: Tensor,
    slot_values: Tensor,
    slots: Tensor,
) -> Tensor:
    """Each row's softmax over its request's context and its own ancestors, at scores queries . keys / sqrt(dim).

    queries: [rows, heads, dim], the same number of rows for each request; dim is 16, 32, 64 or 128. Its rows, like the
    places and slots below, may be views of something wider.
    context_keys, context_values: [places, kv_heads, dim] of one layer.
    page_table: int32 [requests, max_pages]; what stands past a context's own pages is never looked up.
    context_lens: int32 [requests], 0 for a request that only fills the batch.
    slot_keys, slot_values: [num_slots, kv_heads, dim] of one layer.
    slots: int64 [rows, depth], a row's ancestors and itself; depth may be 0.
    Returns [rows, heads, dim] in the queries' dtype, contiguous; zeros for a row that has nothing to attend to.

    Products are in the queries' dtype (not TF32), sums and softmax in fp32. NaN of one request or row reaches no other.
    One launch; two where few programs and long contexts make it worth splitting the context (see `count_splits`). Then
    rows * heads * splits * dim fp32 values are written and read on the way.
    """
    num_rows, num_heads, dim = queries.shape
    (num_requests, max_pages), num_kv_heads = page_table.shape, context_keys.shape[1]
    assert dim in HEAD_SIZES
    assert num_rows % num_requests == 0
    assert num_heads % num_kv_heads == 0
    parts_of_rows = (queries, context_keys, context_values, slot_keys, slot_values)
    assert all(part.dtype == queries.dtype and part.stride()[1:] == (dim, 1) for part in parts_of_rows)
    assert (context_keys.stride(), slot_keys.stride()) == (context_values.stride(), slot_values.stride())

    beam_width, group = num_rows // num_requests, num_heads // num_kv_heads
    tile = _choose_tile(beam_width * group, queries)
    num_tiles, num_pairs = triton.cdiv(beam_width * group, tile.queries), num_requests * num_kv_heads
    num_splits = count_splits(num_tiles * num_pairs, max_pages * page_len)
    part_dtype = queries.dtype if num_splits == 1 else torch.float32
    parts = queries.new_empty((num_splits, *queries.shape), dtype=part_dtype)
    log_weights = queries.new_empty((num_splits, num_rows, num_heads), dtype=torch.float32)
    _attend_kernel[(num_tiles, num_pairs, num_splits)](
        queries,
        context_keys,
        context_values,
        page_table,
        context_lens,
        slot_keys,
        slot_values,
        slots,
        parts,
        log_weights,
        queries.stride(0),
        context_keys.stride(0),
        page_table.stride(0),
        slot_keys.stride(0),
        slots.stride(0),
        beam_width,
        slots.shape[1],
        dim**-0.5 * math.log2(math.e),
        num_kv_heads=num_kv_heads,
        group=group,
        dim=dim,
        page_len=page_len,
        block_queries=tile.queries,
        block_positions=tile.positions,
        widened=triton.knobs.runtime.interpret,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    if num_splits == 1:
        return parts[0]
    attended = queries.new_empty(queries.shape)
    _merge_kernel[(num_rows * num_heads,)](
        parts, log_weights, attended, num_splits, dim=dim, block_splits=triton.next_power_of_2(num_splits), num_warps=4
    )
    return attended


def beam_attention_reference(
    queries: Tensor,
    context_keys: Tensor,
    context_values: Tensor,
    page_table: Tensor,
    page_len: int,
    context_lens: Tensor,
    slot_keys: Tensor,
    slot_values: Tensor,
    slots: Tensor,
) -> Tensor:
    """The same, in plain torch and fp32, request by request and row by row."""
    attended = torch.zeros_like(queries)
    num_requests = len(page_table)
    beam_width, group = len(queries) // num_requests, queries.shape[1] // context_keys.shape[1]
    for request, context_len in enumerate(context_lens.tolist()):
        position = torch.arange(context_len, device=queries.device)
        places = page_table[request, position // page_len].long() * page_len + position % page_len
        for row in range(request * beam_width, (request + 1) * beam_width):
            keys = torch.cat([context_keys[places], slot_keys[slots[row]]]).float()  # [seen, kv_heads, dim]
            values = torch.cat([context_values[places], slot_values[slots[row]]]).float()
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)  # [seen, heads, dim]
            scores = (keys * queries[row].float()).sum(-1) * queries.shape[-1] ** -0.5
            attended[row] = (scores.softmax(0)[..., None] * values).sum(0)
    return attended


def count_splits(num_programs: int, max_context: int) -> int:
    """Among how many programs a context of up to `max_context` positions is split, where each part takes num_programs.

    As many as still run all at once, but none for less than a few tiles of positions.
    """
    return max(1, min(_PROGRAMS_WANTED // num_programs, -(-max_context // _SPLIT_LEN)))


_LARGE_TILE_BYTES = 132 << 10


class _Tile(NamedTuple):
    """What one program holds: queries of one request and KV head, and the positions that it reads at a time."""

    queries: int
    positions: int
    num_warps: int
    num_stages: int


def _choose_tile(num_queries: int, like: Tensor) -> _Tile:
    """Many queries at once, so that keys and values are read seldom. fp32 has no tensor cores: what registers hold.

    Five stages are two tiles of keys in flight, for a page number must have come before its keys are asked for. They
    take 132 KB at head size 128; a GPU that gives a program less gets three.
    """
    wanted = max(16, triton.next_power_of_2(num_queries))
    if like.element_size() > 2:
        return _Tile(min(32, wanted), 32, num_warps=4, num_stages=2)
    queries = min(128, wanted)
    return _Tile(
        queries, 64, num_warps=8 if queries == 128 else 4, num_stages=5 if _has_large_tiles(like.device) else 3
    )


@cache
def _has_large_tiles(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    properties: dict[str, int] = triton.runtime.driver.active.utils.get_device_properties(device.index)
    return properties["max_shared_mem"] >= _LARGE_TILE_BYTES


@triton.jit(do_not_specialize=["table_stride", "ancestor_stride", "beam_width", "depth"])
def _attend_kernel(
    queries,
    context_keys,
    context_values,
    page_table,
    context_lens,
    slot_keys,
    slot_values,
    slots,
    attended,
    log_weights,
    query_stride,
    place_stride,
    table_stride,
    slot_stride,
    ancestor_stride,
    beam_width,
    depth,
    scale,  # of scores in base 2
    num_kv_heads: tl.constexpr,
    group: tl.constexpr,
    dim: tl.constexpr,
    page_len: tl.constexpr,
    block_queries: tl.constexpr,
    block_positions: tl.constexpr,
    widened: tl.constexpr,  # for the interpreter: numpy has no bf16, so the same numbers are multiplied in fp32
):
    request, kv_head = tl.program_id(1) // num_kv_heads, tl.program_id(1) % num_kv_heads
    split, num_splits = tl.program_id(2), tl.num_programs(2)
    index = tl.program_id(0) * block_queries + tl.arange(0, block_queries)
    exists = index < beam_width * group
    row = (request * beam_width + index // group).to(tl.int64)
    head = kv_head * group + index % group
    columns = tl.arange(0, dim)[None, :]
    kv_columns = kv_head * dim + columns
    asked = tl.load(queries + (row * query_stride + head * dim)[:, None] + columns, mask=exists[:, None], other=0.0)
    wide = asked.to(tl.float32)
    factors = wide if widened else asked

    best = tl.full([block_queries], float("-inf"), tl.float32)
    total = tl.zeros([block_queries], tl.float32)
    mixed = tl.zeros([block_queries, dim], tl.float32)

    # The ancestors are gathered, one for each row: too thin for a product. They belong to the last split, the shortest.
    if split == num_splits - 1:
        for step in range(depth):
            slot = tl.load(slots + row * ancestor_stride + step, mask=exists, other=0)
            offsets = (slot * slot_stride)[:, None] + kv_columns
            own_keys = tl.load(slot_keys + offsets, mask=exists[:, None], other=0.0).to(tl.float32)
            own_values = tl.load(slot_values + offsets, mask=exists[:, None], other=0.0).to(tl.float32)
            own_scores = tl.sum(wide * own_keys, axis=1) * scale
            new_best = tl.maximum(best, own_scores)
            shrink = tl.exp2(best - new_best)
            own_weights = tl.exp2(own_scores - new_best)
            total = total * shrink + own_weights
            mixed = mixed * shrink[:, None] + own_weights[:, None] * own_values
            best = new_best

    # Splits are of whole tiles and of this request's own length, so that every program has its share of any context.
    context_len = tl.load(context_lens + request)
    split_len = tl.cdiv(tl.cdiv(context_len, block_positions), num_splits) * block_positions
    end = tl.minimum((split + 1) * split_len, context_len)
    pages = page_table + request.to(tl.int64) * table_stride
    for first in range(split * split_len, end, block_positions):
        position = first + tl.arange(0, block_positions)
        inside = position < end
        page = tl.load(pages + position // page_len, mask=inside, other=0).to(tl.int64)
        place = page * page_len + position % page_len
        offsets = (place * place_stride)[:, None] + kv_columns
        keys = tl.load(context_keys + offsets, mask=inside[:, None], other=0.0)
        scores = tl.dot(factors, tl.trans(keys.to(factors.dtype)), input_precision="ieee") * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2(best - new_best)
        weights = tl.exp2(scores - new_best[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(context_values + offsets, mask=inside[:, None], other=0.0)
        shares = weights.to(values.dtype).to(factors.dtype)
        mixed = tl.dot(shares, values.to(factors.dtype), mixed * shrink[:, None], input_precision="ieee")
        best = new_best

    # Nothing seen: zeros, at a weight of exp2(-inf) beside the other splits.
    divisor = tl.where(total == 0.0, 1.0, total)
    num_rows = tl.num_programs(1) // num_kv_heads * beam_width
    query = (split * num_rows + row) * (num_kv_heads * group) + head
    tl.store(log_weights + query, best + tl.log2(divisor), mask=exists)
    mean = (mixed / divisor[:, None]).to(attended.dtype.element_ty)
    tl.store(attended + (query * dim)[:, None] + columns, mean, mask=exists[:, None])


@triton.jit(do_not_specialize=["num_splits"])
def _merge_kernel(parts, log_weights, attended, num_splits, dim: tl.constexpr, block_splits: tl.constexpr):
    query, num_queries = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    split = tl.arange(0, block_splits)
    there = split < num_splits
    source = split.to(tl.int64) * num_queries + query
    columns = tl.arange(0, dim)
    logs = tl.load(log_weights + source, mask=there, other=float("-inf"))
    best = tl.max(logs, axis=0)
    weights = tl.exp2(logs - tl.where(best == float("-inf"), 0.0, best))  # all empty: weights of 0, not NaN
    means = tl.load(parts + (source * dim)[:, None] + columns[None, :], mask=there[:, None], other=0.0)
    total = tl.sum(weights, axis=0)
    merged = tl.sum(weights[:, None] * means, axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(attended + query * dim + columns, merged.to(attended.dtype.element_ty))
