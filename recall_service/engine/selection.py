"""One level of exact beam search for one request: expand, score, select.

The tie rule, everywhere: score descending, then rank of the parent ascending, then code ascending (token id, in a free
search). Candidates are laid out in (parent, code) order, so a stable sort by score is that rule, and equal logits
give the lexicographically first paths.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.request import ScoreSpace
from recall_service.errors import ModelOutputError

_ROWS_AT_ONCE = 16
_CHUNK = 64


class Candidates(NamedTuple):
    """Legal continuations of a request's rows, in (parent, code) order: [candidates] each.

    parents, tokens, nodes: int64. log_probs, scores: float32.
    """

    parents: Tensor
    tokens: Tensor
    nodes: Tensor
    log_probs: Tensor
    scores: Tensor


class Selection(NamedTuple):
    """The survivors, best first, and the best score among the pruned (-inf if none was): a 0-dim float32."""

    parents: Tensor
    tokens: Tensor
    nodes: Tensor
    log_probs: Tensor
    ranks: Tensor
    best_pruned: Tensor


def select_beams(
    logits: Tensor,
    scores: Tensor,
    nodes: Tensor,
    *,
    level: int,
    width: int,
    constraint: TrieConstraint | None,
    score_space: ScoreSpace,
    with_ranks: bool,
    first_token: int = 0,
) -> Selection:
    """The exact top `width` of all legal continuations; fewer when fewer are legal.

    logits: [rows, tokens], in the model's dtype, of the tokens from first_token on: all of the vocabulary, or as many
    as hold the codebook of the level. scores: float32 [rows]; nodes: int64 [rows], at depth `level`.
    A token whose logit is -inf has probability zero and is no candidate. Raises ModelOutputError for NaN and +inf.
    """
    if constraint is None:
        candidates = _expand_freely(logits, scores, width)
    else:
        candidates = _expand_in_trie(logits, scores, nodes, level, constraint, score_space, first_token)
    candidates = _drop_impossible(candidates)
    chosen, best_pruned = select_top(candidates.scores, width)
    if with_ranks:
        ranks = _ranks(logits, candidates, chosen, level, constraint, score_space, first_token)
    else:
        ranks = torch.zeros(len(chosen), dtype=torch.int32, device=logits.device)
    parents, tokens, children, log_probs, _ = (part[chosen] for part in candidates)
    return Selection(parents, tokens, children, log_probs, ranks, best_pruned)


def select_top(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Indices int64 of the `width` greatest scores, greatest first, ties by lower index; and the best score left out.

    `topk` promises nothing about ties, so it only finds the threshold: all above it are in, and of those that equal
    it the first ones that still have room. Equal to `select_top_reference`.
    """
    if len(scores) <= width:
        return scores.argsort(descending=True, stable=True), scores.new_tensor(-torch.inf)
    greatest = scores.topk(width + 1).values
    threshold, best_pruned = greatest[width - 1], greatest[width]
    above, equal = scores > threshold, scores == threshold
    room = width - above.sum()
    chosen = torch.nonzero(above | (equal & (equal.cumsum(0) <= room))).squeeze(1)
    return chosen[scores[chosen].argsort(descending=True, stable=True)], best_pruned


def select_top_reference(scores: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The same by one stable sort of everything: slow and obvious."""
    order = scores.argsort(descending=True, stable=True)
    pruned = scores[order[width:]]
    return order[:width], pruned[0] if len(pruned) else scores.new_tensor(-torch.inf)


def _expand_freely(logits: Tensor, scores: Tensor, width: int) -> Candidates:
    """Enough of rows x vocabulary to hold the top `width` and the next best one, in (parent, token) order.

    The vocabulary is cut into chunks. The best of a chunk is a candidate itself, so the (width + 1)-th best chunk
    bounds the (width + 1)-th best candidate from below, and no chunk whose best is under it can hold any of them.
    """
    vocab_size = logits.shape[1]
    normaliser = _finite(log_normaliser(logits))
    chunk_best = scores[:, None] + (_chunk_maxima(logits) - normaliser[:, None])  # [rows, chunks]
    enough = min(width + 1, chunk_best.numel())
    parents, chunks = torch.nonzero(chunk_best >= chunk_best.flatten().topk(enough).values[-1], as_tuple=True)
    tokens = chunks[:, None] * _CHUNK + torch.arange(_CHUNK, device=logits.device)
    inside = tokens < vocab_size
    parents, tokens = parents[:, None].expand_as(tokens)[inside], tokens[inside]
    log_probs = logits[parents, tokens].float() - normaliser[parents]
    return Candidates(parents, tokens, tokens, log_probs, scores[parents] + log_probs)


def _chunk_maxima(logits: Tensor) -> Tensor:
    """float32 [rows, chunks]: the greatest logit of each _CHUNK neighbouring tokens; the last chunk may be shorter."""
    whole = logits.shape[1] // _CHUNK * _CHUNK
    maxima: Tensor = logits[:, :whole].unflatten(1, (-1, _CHUNK)).amax(-1)
    if whole < logits.shape[1]:
        maxima = torch.cat([maxima, logits[:, whole:].amax(-1, keepdim=True)], dim=1)
    return maxima.float()


def log_normaliser(logits: Tensor) -> Tensor:
    """log-sum-exp of each row, float32 [rows]. A few rows at a time, so that a row's passes find it in the cache."""
    return torch.cat([torch.logsumexp(rows.float(), dim=-1) for rows in logits.split(_ROWS_AT_ONCE)])


def _expand_in_trie(
    logits: Tensor,
    scores: Tensor,
    nodes: Tensor,
    level: int,
    constraint: TrieConstraint,
    score_space: ScoreSpace,
    first_token: int,
) -> Candidates:
    parents, tokens, children, counts = constraint.children(level, nodes)
    legal_logits = logits[parents, tokens - first_token].float()
    if score_space is ScoreSpace.VOCABULARY:
        normaliser = log_normaliser(logits)
    elif score_space is ScoreSpace.CODEBOOK:
        normaliser = log_normaliser(logits[:, constraint.codebook(level) - first_token])
    else:
        normaliser = segment_logsumexp(legal_logits, parents, counts)
    log_probs = legal_logits - _finite(normaliser)[parents]
    return Candidates(parents, tokens, children, log_probs, scores[parents] + log_probs)


def segment_logsumexp(values: Tensor, segments: Tensor, lengths: Tensor) -> Tensor:
    """log-sum-exp of consecutive segments of values [n], float32: segments int64 [n] names each value's segment.

    Subtracting the maximum makes one term exactly 1, so the result is never below the maximum, in floating point too.
    """
    greatest = torch.segment_reduce(values, "max", lengths=lengths)
    shift = torch.where(greatest == -torch.inf, 0.0, greatest)  # a segment of -inf alone stays -inf, not NaN
    terms = (values - shift[segments]).exp().double()  # summed one after another: in fp32, 65,536 terms lose 4e-4
    total = torch.segment_reduce(terms, "sum", lengths=lengths)
    return (total.log() + shift).float()


def _finite(normaliser: Tensor) -> Tensor:
    """Pass a row's normaliser unless the row held NaN or +inf. -inf is lawful: a row that can go nowhere."""
    if bool((normaliser.isnan() | (normaliser == torch.inf)).any()):
        raise ModelOutputError("the model's logits hold NaN or +inf; check the checkpoint and the prompt")
    return normaliser


def _drop_impossible(candidates: Candidates) -> Candidates:
    possible = candidates.scores > -torch.inf  # also false for the NaN of -inf minus -inf
    if bool(possible.all()):
        return candidates
    return Candidates(*(part[possible] for part in candidates))


def _ranks(
    logits: Tensor,
    candidates: Candidates,
    chosen: Tensor,
    level: int,
    constraint: TrieConstraint | None,
    score_space: ScoreSpace,
    first_token: int,
) -> Tensor:
    """int32 [chosen]: 1 + how many tokens of the score space have a greater logit, by broadcast comparison."""
    space = logits
    if constraint is not None and score_space is ScoreSpace.CODEBOOK:
        space = logits[:, constraint.codebook(level) - first_token]
    elif constraint is not None and score_space is ScoreSpace.CATALOG:
        space = torch.full_like(logits, -torch.inf)
        legal = candidates.parents, candidates.tokens - first_token
        space[legal] = logits[legal]
    parents = candidates.parents[chosen]
    own = logits[parents, candidates.tokens[chosen] - first_token]
    return 1 + (space[parents] > own[:, None]).sum(-1, dtype=torch.int32)
