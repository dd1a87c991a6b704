"""Exact selection for several requests at once, at shapes that the host knows beforehand.

The semantics are those of `selection.select_beams`, tie rule included: score descending, then rank of the parent, then
code (token, in a free search). But nothing here has a shape that depends on a value, and nothing asks the device for
one, so that the whole can be captured as a CUDA graph. A row that does not exist scores -inf.

A row's continuations, its node's children or all tokens, are cut into chunks of CHUNK neighbours. Only the width + 1
best chunks of a request, by the best score in them and then by position, are looked at one by one. That suffices: if a
candidate's chunk is not among them, each of these holds a candidate that comes before it, for its best one scores more,
or scores the same and lies further ahead. So width + 1 candidates come before it, and it is neither a survivor nor the
best one pruned.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from recall_service.engine.constraint import LevelArrays, TrieConstraint
from recall_service.engine.request import ScoreSpace
from recall_service.engine.selection import Candidates

# Most of the work is to find the best among the candidates of width + 1 chunks. The nodes of a real catalogue have few
# children: longer chunks would be mostly empty.
CHUNK = 32
_GROUP = 64


class ChunkStatistics(NamedTuple):
    """What is known of rows before their continuations are looked at one by one.

    normaliser: float32 [rows], the log-sum-exp of all of a row's continuations, never below their maximum.
    maxima: float32 [rows, chunks], the greatest logit of each chunk; -inf for one that is empty.
    Where a row holds NaN or +inf, its normaliser is NaN or +inf, and its maxima are arbitrary.
    """

    normaliser: Tensor
    maxima: Tensor


class SelectionKernels(NamedTuple):
    """What selection is made of. Logits are [rows, tokens], the tokens of a row side by side in memory.

    row_normaliser(logits) -> float32 [rows]: their log-sum-exp.
    row_statistics(logits): of all tokens.
    candidate_chunks(logits, nodes, trie, first_token): of the legal children alone.
    expand_chunks(logits, scores, nodes, normaliser, chunks, trie, first_token): the candidates of chunks int64
        [requests, n], numbered through all rows of a request, -1 for none; all tokens are continuations without a trie.
        Each part is [requests, n * CHUNK], chunk by chunk. Where there is no candidate, the score is -inf, the rest 0.
    token_ranks(logits, rows, values) -> int32 [n]: 1 + how many logits of rows int64 [n] are above values float32 [n].
    child_ranks(logits, nodes, trie, first_token, rows, values): the same among the legal children alone.
    """

    row_normaliser: Callable[[Tensor], Tensor]
    row_statistics: Callable[[Tensor], ChunkStatistics]
    candidate_chunks: Callable[[Tensor, Tensor, LevelArrays, int], ChunkStatistics]
    expand_chunks: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, LevelArrays | None, int], Candidates]
    token_ranks: Callable[[Tensor, Tensor, Tensor], Tensor]
    child_ranks: Callable[[Tensor, Tensor, LevelArrays, int, Tensor, Tensor], Tensor]


class FixedSelection(NamedTuple):
    """The survivors of each request, best first: [requests, width] each.

    parents: int64, a row within its request. tokens, nodes: int64. log_probs, scores: float32. ranks: int32, 0 unless
    asked for. Where fewer are legal, what remains scores -inf and is 0 otherwise.
    best_pruned: float32 [requests], the best score among the pruned; -inf if none was.
    invalid: bool [requests], where a row that exists had NaN or +inf for a logit that counts. What was selected for
    that request means nothing.
    """

    parents: Tensor
    tokens: Tensor
    nodes: Tensor
    log_probs: Tensor
    scores: Tensor
    ranks: Tensor
    best_pruned: Tensor
    invalid: Tensor


def select_fixed(
    logits: Tensor,
    scores: Tensor,
    nodes: Tensor,
    *,
    num_requests: int,
    level: int,
    width: int,
    constraint: TrieConstraint | None,
    score_space: ScoreSpace,
    with_ranks: bool,
    first_token: int = 0,
    kernels: SelectionKernels,
) -> FixedSelection:
    """The exact top `width` of each request's legal continuations, as `select_beams` defines them.

    logits: [requests * rows, tokens], in the model's dtype, of the tokens from first_token on. scores: float32 and
    nodes: int64 [requests * rows], at depth `level`; a row that does not exist has score -inf and any node there.
    What is launched depends on the shapes alone. It takes, for every row, 4 bytes for each chunk of the vocabulary, or
    8 for each of the widest node (16 KB for 65,536 children), and for every request 1 KB for each of width + 1 chunks.
    """
    trie = None if constraint is None else constraint.level_arrays(level)
    normaliser, maxima = _statistics(logits, nodes, level, constraint, score_space, first_token, kernels)
    is_faulty = ~(normaliser < torch.inf) & (scores > -torch.inf)
    # In place, for nothing here is larger; NaN where a row can go nowhere or is faulty.
    chunk_best = maxima.sub_(normaliser[:, None]).add_(scores[:, None])  # [requests * rows, chunks]
    chunk_best.nan_to_num_(nan=-torch.inf, posinf=-torch.inf, neginf=-torch.inf)
    chunks = _best_chunks(chunk_best.view(num_requests, -1), width + 1)
    candidates = kernels.expand_chunks(logits, scores, nodes, normaliser, chunks, trie, first_token)
    chosen, next_best = select_top_fixed(candidates.scores, width + 1).split([width, 1], dim=1)
    survivors = Candidates(*(part.gather(1, chosen) for part in candidates))
    if with_ranks:
        ranks = _ranks(logits, nodes, survivors, level, constraint, score_space, first_token, kernels)
    else:
        ranks = torch.zeros_like(chosen, dtype=torch.int32)
    return FixedSelection(
        *survivors,
        ranks=ranks,
        best_pruned=candidates.scores.gather(1, next_best).squeeze(1),
        invalid=is_faulty.view(num_requests, -1).any(1),
    )


def select_top_fixed(scores: Tensor, count: int) -> Tensor:
    """Indices int64 [requests, count] of the greatest of scores, greatest first, ties by lower index.

    scores: float32 [requests, n], n at least `count`; -inf is a score like any other, NaN is none. Equal to
    `selection.select_top_reference` of each request.
    """
    num_scores = scores.shape[1]
    if num_scores <= 2 * count * _GROUP:
        return _order_keys(scores).topk(count, dim=1).indices
    # Of so many, the best `count` groups hold the best `count` scores, as chunks hold candidates.
    groups = pad(scores, (0, -num_scores % _GROUP), value=-torch.inf).unflatten(1, (-1, _GROUP))
    kept = select_top_fixed(groups.amax(2), count).sort(dim=1).values
    members = groups.gather(1, kept[:, :, None].expand(-1, -1, _GROUP)).flatten(1)
    chosen = select_top_fixed(members, count)
    return kept.gather(1, chosen // _GROUP) * _GROUP + chosen % _GROUP


def _order_keys(scores: Tensor) -> Tensor:
    """int64 [requests, n], all different: greater for a greater score, and among equal ones for the lower index.

    `topk` promises nothing about ties, so there must be none. The bits of a float order as its value does, once those
    of a negative one are turned over.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0, to which it is equal
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) - torch.arange(scores.shape[1], device=scores.device)


def _best_chunks(chunk_best: Tensor, count: int) -> Tensor:
    """int64 [requests, n]: the best `count` chunks in ascending order, or all; then -1 until `count` candidates fit."""
    num_requests, num_chunks = chunk_best.shape
    if num_chunks > count:
        return select_top_fixed(chunk_best, count).sort(dim=1).values
    every = torch.arange(num_chunks, device=chunk_best.device).expand(num_requests, -1)
    num_missing = max(0, -(-count // CHUNK) - num_chunks)
    return pad(every, (0, num_missing), value=-1)


def _statistics(
    logits: Tensor,
    nodes: Tensor,
    level: int,
    constraint: TrieConstraint | None,
    score_space: ScoreSpace,
    first_token: int,
    kernels: SelectionKernels,
) -> ChunkStatistics:
    """The rows' normalisers over the score space, and the maxima of the chunks of their legal continuations."""
    if constraint is None:
        return kernels.row_statistics(logits)
    of_children = kernels.candidate_chunks(logits, nodes, constraint.level_arrays(level), first_token)
    if score_space is ScoreSpace.CATALOG:
        return of_children
    normaliser = kernels.row_normaliser(_space(logits, level, constraint, score_space, first_token))
    return ChunkStatistics(normaliser, of_children.maxima)


def _space(
    logits: Tensor, level: int, constraint: TrieConstraint | None, score_space: ScoreSpace, first_token: int
) -> Tensor:
    """The columns of the logits that the score space consists of, where it is the same for every row."""
    if constraint is None or score_space is ScoreSpace.VOCABULARY:
        return logits
    columns = constraint.codebook_columns(level, first_token)
    return logits[:, columns] if isinstance(columns, slice) else logits.index_select(1, columns)


def _ranks(
    logits: Tensor,
    nodes: Tensor,
    survivors: Candidates,
    level: int,
    constraint: TrieConstraint | None,
    score_space: ScoreSpace,
    first_token: int,
    kernels: SelectionKernels,
) -> Tensor:
    """int32 [requests, width]: 1 + how many tokens of the score space have a greater logit."""
    num_requests = len(survivors.parents)
    first_rows = torch.arange(0, len(nodes), len(nodes) // num_requests, device=nodes.device)
    rows = (survivors.parents + first_rows[:, None]).flatten()
    columns = (survivors.tokens.flatten() - first_token).clamp(min=0)  # token 0 of a survivor that does not exist
    own = logits[rows, columns].float()
    if constraint is not None and score_space is ScoreSpace.CATALOG:
        ranks = kernels.child_ranks(logits, nodes, constraint.level_arrays(level), first_token, rows, own)
    else:
        ranks = kernels.token_ranks(_space(logits, level, constraint, score_space, first_token), rows, own)
    return ranks.view(num_requests, -1) * (survivors.scores > -torch.inf)
