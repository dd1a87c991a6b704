"""How many logits of a row are greater than a given one: of all its tokens, or of its legal children alone."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from recall_service.engine.constraint import LevelArrays
from recall_service.engine.kernels.candidate_chunks import child_logits, load_children

_TOKEN_BLOCK = 4096
_CHILD_BLOCK = 256


def token_ranks(logits: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """1 + how many of logits [rows, tokens] in rows int64 [n] are above values float32 [n]: int32 [n]. One launch."""
    assert logits.stride(1) == 1
    assert all(part.is_contiguous() for part in (rows, values))
    ranks = torch.empty_like(rows, dtype=torch.int32)
    _token_kernel[(len(rows),)](
        logits, rows, values, ranks, logits.shape[1], logits.stride(0), block=_TOKEN_BLOCK, num_warps=8
    )
    return ranks


def token_ranks_reference(logits: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    """The same, in plain torch."""
    return 1 + (logits[rows] > values[:, None]).sum(1, dtype=torch.int32)


def child_ranks(
    logits: Tensor, nodes: Tensor, trie: LevelArrays, first_token: int, rows: Tensor, values: Tensor
) -> Tensor:
    """The same among the children of each row's node, int64 [rows]; logits begin at first_token. One launch."""
    assert logits.stride(1) == 1
    assert all(part.is_contiguous() for part in (nodes, rows, values))
    ranks = torch.empty_like(rows, dtype=torch.int32)
    _child_kernel[(len(rows),)](
        logits,
        nodes,
        trie.offsets,
        trie.codes,
        trie.tokens,
        trie.live,
        rows,
        values,
        ranks,
        logits.stride(0),
        first_token,
        is_filtered=trie.live is not None,
        block=_CHILD_BLOCK,
        num_warps=4,
    )
    return ranks


def child_ranks_reference(
    logits: Tensor, nodes: Tensor, trie: LevelArrays, first_token: int, rows: Tensor, values: Tensor
) -> Tensor:
    """The same, row by row."""
    ranks = []
    for row, value in zip(rows.tolist(), values, strict=True):
        of_children = child_logits(logits, row, nodes[row], trie, first_token)
        ranks.append(1 + (of_children > value).sum(dtype=torch.int32))
    return torch.stack(ranks)


@triton.jit
def _token_kernel(logits, rows, values, ranks, num_tokens, row_stride, block: tl.constexpr):
    place = tl.program_id(0)
    row_start, value = tl.load(rows + place) * row_stride, tl.load(values + place)
    above = tl.zeros((block,), tl.int32)
    for first in range(0, num_tokens, block):
        tokens = first + tl.arange(0, block)
        own = tl.load(logits + row_start + tokens, mask=tokens < num_tokens, other=-float("inf")).to(tl.float32)
        above += (own > value).to(tl.int32)
    tl.store(ranks + place, 1 + tl.sum(above, axis=0))


@triton.jit
def _child_kernel(
    logits,
    nodes,
    offsets,
    codes,
    tokens,
    live,
    rows,
    values,
    ranks,
    row_stride,
    first_token,
    is_filtered: tl.constexpr,
    block: tl.constexpr,
):
    place = tl.program_id(0)
    row, value = tl.load(rows + place), tl.load(values + place)
    node = tl.load(nodes + row)
    first, end = tl.load(offsets + node).to(tl.int64), tl.load(offsets + node + 1).to(tl.int64)
    above = tl.zeros((block,), tl.int32)
    for position in range(0, (end - first).to(tl.int32), block):
        children = first + position + tl.arange(0, block)
        _, own = load_children(
            logits, row * row_stride, children, children < end, codes, tokens, live, first_token, is_filtered
        )
        above += (own > value).to(tl.int32)
    tl.store(ranks + place, 1 + tl.sum(above, axis=0))
