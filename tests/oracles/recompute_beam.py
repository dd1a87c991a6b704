"""O2: beam search as one would write it on a blackboard. Lists, dicts and one sort; no KV, no tensors, fp64.

Every prefix is scored anew by `logits(prefixes)`. The tie rule is the sort key: score descending, then rank of the
parent, then order among its children.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from recall_service.engine.request import ScoreSpace

Path = tuple[int, ...]
Logits = Callable[[list[Path]], Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Beam:
    """One path, with the log-probability and the rank of each of its tokens."""

    path: Path = ()
    score: float = 0.0
    log_probs: tuple[float, ...] = ()
    ranks: tuple[int, ...] = ()


@dataclass
class Search:
    """What the search found, best first; the best score it pruned; and how near a call the pruning was.

    margin: the least difference between a kept and a pruned candidate. Under rounding, a search of any other precision
    may decide a nearer call the other way.
    """

    beams: list[Beam] = field(default_factory=lambda: [Beam()])
    bound: float = -math.inf
    margin: float = math.inf


def recompute_beam(
    logits: Logits,
    children: Callable[[Path], list[int]],
    num_steps: int,
    width: int,
    space: ScoreSpace,
    codebooks: Sequence[Sequence[int]],
) -> Search:
    """children: the legal tokens after a path, in the order of their codes. codebooks: the tokens of each level."""
    search = Search()
    for level in range(num_steps):
        if not search.beams:
            break
        rows = logits([beam.path for beam in search.beams])
        candidates = []
        for parent_rank, (beam, row) in enumerate(zip(search.beams, rows, strict=True)):
            legal = children(beam.path)
            scored = {
                ScoreSpace.VOCABULARY: row,
                ScoreSpace.CODEBOOK: [row[token] for token in codebooks[level]],
                ScoreSpace.CATALOG: [row[token] for token in legal],
            }[space]
            normaliser = log_sum_exp(scored)
            for child_rank, token in enumerate(legal):
                if row[token] == -math.inf:
                    continue  # probability zero: absent, not merely unlikely
                log_prob = row[token] - normaliser
                rank = 1 + sum(other > row[token] for other in scored)
                child = Beam(
                    (*beam.path, token), beam.score + log_prob, (*beam.log_probs, log_prob), (*beam.ranks, rank)
                )
                candidates.append((-child.score, parent_rank, child_rank, child))
        candidates.sort(key=lambda candidate: candidate[:3])
        ordered = [candidate[-1] for candidate in candidates]
        search.beams, pruned = ordered[:width], ordered[width:]
        if pruned:
            search.bound = max(search.bound, pruned[0].score)
            search.margin = min(search.margin, search.beams[-1].score - pruned[0].score)
    return search


def log_sum_exp(values: Sequence[float]) -> float:
    """log(sum(exp(values))), -inf for nothing but -inf."""
    greatest = max(values)
    if greatest == -math.inf:
        return greatest
    return greatest + math.log(math.fsum(math.exp(value - greatest) for value in values))
