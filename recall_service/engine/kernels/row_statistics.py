"""Log-sum-exp of rows of logits, and the greatest logit of every chunk of neighbouring tokens, read in one pass.

A row is cut into blocks, a program each; a second small kernel merges what they found. The cuts depend on the number
of tokens alone, so a row's result does not depend on which rows are beside it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

from recall_service.engine.fixed_selection import CHUNK, ChunkStatistics
from recall_service.engine.selection import log_normaliser

_BLOCK_CHUNKS = 4096 // CHUNK


def row_statistics(logits: Tensor) -> ChunkStatistics:
    """Log-sum-exp and chunk maxima of logits [rows, tokens]; see `SelectionKernels`. Two launches."""
    num_rows, num_tokens = logits.shape
    chunk_maxima = logits.new_empty((num_rows, triton.cdiv(num_tokens, CHUNK)), dtype=torch.float32)
    return ChunkStatistics(_normaliser(logits, chunk_maxima), chunk_maxima)


def row_statistics_reference(logits: Tensor) -> ChunkStatistics:
    """The same, in plain torch."""
    chunks = pad(logits.float(), (0, -logits.shape[1] % CHUNK), value=-torch.inf).unflatten(1, (-1, CHUNK))
    return ChunkStatistics(log_normaliser(logits), chunks.amax(2))


def row_normaliser(logits: Tensor) -> Tensor:
    """Log-sum-exp alone, float32 [rows]. Two launches."""
    return _normaliser(logits, None)


def row_normaliser_reference(logits: Tensor) -> Tensor:
    """The same, in plain torch."""
    return log_normaliser(logits)


def merge_normalisers(maxima: Tensor, sums: Tensor) -> Tensor:
    """Log-sum-exp of rows, float32 [rows], from what is known of their parts: float32 [rows, parts] each. One launch.

    sums: of exp(logit - maximum), for parts whose maximum is not -inf; 0 for the others; NaN spreads to the row.
    """
    num_rows, num_parts = maxima.shape
    normaliser = maxima.new_empty(num_rows)
    block = triton.next_power_of_2(num_parts)
    _merge_kernel[(num_rows,)](maxima, sums, normaliser, num_parts, block=block, num_warps=4 if block > 256 else 1)
    return normaliser


def _normaliser(logits: Tensor, chunk_maxima: Tensor | None) -> Tensor:
    assert logits.stride(1) == 1
    num_rows, num_tokens = logits.shape
    num_blocks = triton.cdiv(num_tokens, _BLOCK_CHUNKS * CHUNK)
    maxima = logits.new_empty((num_rows, num_blocks), dtype=torch.float32)
    sums = torch.empty_like(maxima)
    _block_kernel[(num_rows, num_blocks)](
        logits,
        maxima,
        sums,
        chunk_maxima,
        num_tokens,
        triton.cdiv(num_tokens, CHUNK),
        logits.stride(0),
        with_chunks=chunk_maxima is not None,
        chunk_len=CHUNK,
        block_chunks=_BLOCK_CHUNKS,
        num_warps=8,
    )
    return merge_normalisers(maxima, sums)


@triton.jit
def _block_kernel(
    logits,
    maxima,
    sums,
    chunk_maxima,
    num_tokens,
    num_chunks,
    row_stride,
    with_chunks: tl.constexpr,
    chunk_len: tl.constexpr,
    block_chunks: tl.constexpr,
):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    chunks = block * block_chunks + tl.arange(0, block_chunks)
    tokens = chunks[:, None] * chunk_len + tl.arange(0, chunk_len)[None, :]
    values = tl.load(logits + row * row_stride + tokens, mask=tokens < num_tokens, other=-float("inf")).to(tl.float32)
    of_chunks = tl.max(values, axis=1)
    greatest = tl.max(of_chunks, axis=0)
    total = tl.sum(tl.sum(tl.exp(values - finite_shift(greatest)), axis=1), axis=0)
    tl.store(maxima + row * tl.num_programs(1) + block, greatest)
    tl.store(sums + row * tl.num_programs(1) + block, total)
    if with_chunks:
        tl.store(chunk_maxima + row * num_chunks + chunks, of_chunks, mask=chunks < num_chunks)


@triton.jit
def _merge_kernel(maxima, sums, normaliser, num_parts, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    parts = tl.arange(0, block)
    places, inside = row * num_parts + parts, parts < num_parts
    of_parts = tl.load(maxima + places, mask=inside, other=-float("inf"))
    shift = finite_shift(tl.max(of_parts, axis=0))
    total = tl.sum(tl.load(sums + places, mask=inside, other=0.0) * tl.exp(of_parts - shift), axis=0)
    # The greatest term is exactly 1. A log that the hardware rounds below 0 would put the whole below the maximum, and
    # a log-probability above 0; the certificate rests on there being none. A total of 0 or NaN is left as it is.
    logarithm = tl.log(total)
    logarithm = tl.where((total >= 1.0) & (logarithm < 0.0), 0.0, logarithm)
    tl.store(normaliser + row, shift + logarithm)


@triton.jit
def finite_shift(greatest):
    """What to subtract before exp: the maximum, or 0 where all is -inf, which then stays so and does not become NaN."""
    return tl.where(greatest == -float("inf"), 0.0, greatest)
