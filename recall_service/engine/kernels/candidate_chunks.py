"""The legal continuations of rows in chunks of neighbours: first the best of each chunk, then all of the best chunks.

Walks the trie as it lies in memory: a node's children are numbered one after another. Knows no widths and no ties.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from recall_service.engine.constraint import LevelArrays
from recall_service.engine.fixed_selection import CHUNK, ChunkStatistics
from recall_service.engine.kernels.row_statistics import finite_shift, merge_normalisers
from recall_service.engine.selection import Candidates, segment_logsumexp

_BLOCK_CHUNKS = 16


def candidate_chunks(logits: Tensor, nodes: Tensor, trie: LevelArrays, first_token: int) -> ChunkStatistics:
    """Log-sum-exp over each row's legal children and the maxima of their chunks; see `SelectionKernels`. Two launches.

    logits: [rows, tokens] from first_token on; nodes: int64 [rows].
    """
    assert logits.stride(1) == 1
    assert nodes.is_contiguous()
    maxima = logits.new_empty((len(nodes), chunks_per_row(logits, trie)), dtype=torch.float32)
    sums = torch.empty_like(maxima)
    num_rows, num_chunks = maxima.shape
    _chunk_kernel[(num_rows, triton.cdiv(num_chunks, _BLOCK_CHUNKS))](
        logits,
        nodes,
        trie.offsets,
        trie.codes,
        trie.tokens,
        trie.live,
        maxima,
        sums,
        num_chunks,
        logits.stride(0),
        first_token,
        is_filtered=trie.live is not None,
        chunk_len=CHUNK,
        block_chunks=_BLOCK_CHUNKS,
        num_warps=4,
    )
    return ChunkStatistics(merge_normalisers(maxima, sums), maxima)


def candidate_chunks_reference(logits: Tensor, nodes: Tensor, trie: LevelArrays, first_token: int) -> ChunkStatistics:
    """The same, row by row."""
    shape = len(nodes), chunks_per_row(logits, trie)
    maxima = torch.full(shape, -torch.inf, device=logits.device)
    normaliser = torch.empty(len(nodes), device=logits.device)
    for row, node in enumerate(nodes):
        values = child_logits(logits, row, node, trie, first_token)
        for chunk, part in enumerate(values.split(CHUNK)):
            maxima[row, chunk] = part.amax()
        of_one = torch.zeros(len(values), dtype=torch.int64, device=logits.device)
        normaliser[row] = segment_logsumexp(values, of_one, of_one.new_tensor([len(values)]))
    return ChunkStatistics(normaliser, maxima)


def child_logits(logits: Tensor, row: int, node: Tensor, trie: LevelArrays, first_token: int) -> Tensor:
    """A row's logits of all children of its node, float32 [children]; -inf for those that are not live."""
    children = slice(int(trie.offsets[node]), int(trie.offsets[node + 1]))
    codes = trie.codes[children].long() & 0xFFFF
    values = logits[row, trie.tokens[codes] - first_token].float()
    return values if trie.live is None else values.where(trie.live[children], -torch.inf)


def chunks_per_row(logits: Tensor, trie: LevelArrays | None) -> int:
    """Chunks that the widest node of a level has, or the vocabulary: every row has as many, empty ones at its end."""
    return -(-(logits.shape[1] if trie is None else trie.max_children) // CHUNK)


def expand_chunks(
    logits: Tensor,
    scores: Tensor,
    nodes: Tensor,
    normaliser: Tensor,
    chunks: Tensor,
    trie: LevelArrays | None,
    first_token: int,
) -> Candidates:
    """The candidates of chunks int64 [requests, n]; see `SelectionKernels`. One launch.

    logits: [rows, tokens] from first_token on. scores, normaliser: float32 [rows]; nodes: int64 [rows]. The rows are
    those of all requests, the same number for each. Writes 32 bytes for each of n * CHUNK candidates.
    """
    chunks = chunks.contiguous()
    assert logits.stride(1) == 1
    assert all(part.is_contiguous() for part in (scores, nodes, normaliser))
    (num_requests, num_chosen), (num_rows, num_tokens) = chunks.shape, logits.shape
    shape = num_requests, num_chosen * CHUNK
    candidates = Candidates(
        parents=chunks.new_empty(shape),
        tokens=chunks.new_empty(shape),
        nodes=chunks.new_empty(shape),
        log_probs=scores.new_empty(shape),
        scores=scores.new_empty(shape),
    )
    _expand_kernel[(triton.cdiv(num_requests * num_chosen, _BLOCK_CHUNKS),)](
        logits,
        scores,
        nodes,
        normaliser,
        chunks,
        *((None,) * 4 if trie is None else trie[:4]),
        *candidates,
        num_requests * num_chosen,
        num_chosen,
        num_rows // num_requests,
        chunks_per_row(logits, trie),
        num_tokens,
        logits.stride(0),
        first_token,
        in_trie=trie is not None,
        is_filtered=trie is not None and trie.live is not None,
        chunk_len=CHUNK,
        block_chunks=_BLOCK_CHUNKS,
        num_warps=4,
    )
    return candidates


def expand_chunks_reference(
    logits: Tensor,
    scores: Tensor,
    nodes: Tensor,
    normaliser: Tensor,
    chunks: Tensor,
    trie: LevelArrays | None,
    first_token: int,
) -> Candidates:
    """The same, chunk by chunk."""
    shape = len(chunks), chunks.shape[1] * CHUNK
    found = Candidates(
        parents=chunks.new_zeros(shape),
        tokens=chunks.new_zeros(shape),
        nodes=chunks.new_zeros(shape),
        log_probs=scores.new_zeros(shape),
        scores=scores.new_full(shape, -torch.inf),
    )
    for request, chosen in enumerate(chunks.tolist()):
        for place, chunk in enumerate(chosen):
            if chunk < 0:
                continue
            parent, position = divmod(chunk, chunks_per_row(logits, trie))
            row = request * len(nodes) // len(chunks) + parent
            first, end = (0, logits.shape[1]) if trie is None else trie.offsets[nodes[row] :][:2].tolist()
            children = torch.arange(first, end, device=logits.device)[position * CHUNK :][:CHUNK]
            tokens = children if trie is None else trie.tokens[trie.codes[children].long() & 0xFFFF]
            log_probs = logits[row, tokens - first_token].float() - normaliser[row]
            own = Candidates(torch.full_like(children, parent), tokens, children, log_probs, scores[row] + log_probs)
            possible = own.scores > -torch.inf
            if trie is not None and trie.live is not None:
                possible &= trie.live[children]
            places = place * CHUNK + torch.nonzero(possible).squeeze(1)
            for part, own_part in zip(found, own, strict=True):
                part[request, places] = own_part[possible]
    return found


@triton.jit
def load_children(logits, row_start, children, present, codes, tokens, live, first_token, is_filtered: tl.constexpr):
    """Tokens of children and their logits in fp32; 0 and -inf where none is present. row_start: of the row's logits."""
    if is_filtered:
        present &= tl.load(live + children, mask=present, other=0) != 0
    of_children = tl.load(codes + children, mask=present, other=0).to(tl.int32) & 0xFFFF
    child_tokens = tl.load(tokens + of_children, mask=present, other=0)
    values = tl.load(logits + (row_start + child_tokens - first_token), mask=present, other=-float("inf"))
    return child_tokens, values.to(tl.float32)


@triton.jit
def _chunk_kernel(
    logits,
    nodes,
    offsets,
    codes,
    tokens,
    live,
    maxima,
    sums,
    num_chunks,
    row_stride,
    first_token,
    is_filtered: tl.constexpr,
    chunk_len: tl.constexpr,
    block_chunks: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    node = tl.load(nodes + row)
    first, end = tl.load(offsets + node).to(tl.int64), tl.load(offsets + node + 1).to(tl.int64)
    chunks = tl.program_id(1) * block_chunks + tl.arange(0, block_chunks)
    children = first + chunks[:, None] * chunk_len + tl.arange(0, chunk_len)[None, :]
    _, values = load_children(
        logits, row * row_stride, children, children < end, codes, tokens, live, first_token, is_filtered
    )
    greatest = tl.max(values, axis=1)
    total = tl.sum(tl.exp(values - finite_shift(greatest)[:, None]), axis=1)
    tl.store(maxima + row * num_chunks + chunks, greatest, mask=chunks < num_chunks)
    tl.store(sums + row * num_chunks + chunks, total, mask=chunks < num_chunks)


@triton.jit
def _expand_kernel(
    logits,
    scores,
    nodes,
    normaliser,
    chunks,
    offsets,
    codes,
    tokens,
    live,
    out_parents,
    out_tokens,
    out_nodes,
    out_log_probs,
    out_scores,
    num_expanded,
    num_chosen,
    rows_per_request,
    chunks_per_row,
    num_tokens,
    row_stride,
    first_token,
    in_trie: tl.constexpr,
    is_filtered: tl.constexpr,
    chunk_len: tl.constexpr,
    block_chunks: tl.constexpr,
):
    places = tl.program_id(0).to(tl.int64) * block_chunks + tl.arange(0, block_chunks)
    inside = places < num_expanded
    chunk = tl.load(chunks + places, mask=inside, other=-1)
    is_chunk = chunk >= 0
    chunk = tl.where(is_chunk, chunk, 0)
    parent = chunk // chunks_per_row
    row = places // num_chosen * rows_per_request + parent
    score = tl.load(scores + row, mask=is_chunk, other=-float("inf"))
    of_row = tl.load(normaliser + row, mask=is_chunk, other=0.0)

    children = (chunk % chunks_per_row)[:, None] * chunk_len + tl.arange(0, chunk_len)[None, :]
    row_start = (row * row_stride)[:, None]
    if in_trie:
        node = tl.load(nodes + row, mask=is_chunk, other=0)
        children += tl.load(offsets + node).to(tl.int64)[:, None]
        present = is_chunk[:, None] & (children < tl.load(offsets + node + 1).to(tl.int64)[:, None])
        child_tokens, values = load_children(
            logits, row_start, children, present, codes, tokens, live, first_token, is_filtered
        )
    else:
        present = is_chunk[:, None] & (children < num_tokens)
        child_tokens = children
        values = tl.load(logits + row_start + children, mask=present, other=-float("inf")).to(tl.float32)

    log_probs = values - of_row[:, None]
    candidate_scores = score[:, None] + log_probs
    possible = candidate_scores > -float("inf")  # also false for the NaN of -inf minus -inf
    out = places[:, None] * chunk_len + tl.arange(0, chunk_len)[None, :]
    mask = inside[:, None]
    tl.store(out_parents + out, tl.where(possible, parent[:, None], 0), mask=mask)
    tl.store(out_tokens + out, tl.where(possible, child_tokens, 0), mask=mask)
    tl.store(out_nodes + out, tl.where(possible, children, 0), mask=mask)
    tl.store(out_log_probs + out, tl.where(possible, log_probs, 0.0), mask=mask)
    tl.store(out_scores + out, tl.where(possible, candidate_scores, -float("inf")), mask=mask)
