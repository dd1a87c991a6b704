"""What a search pays for its constraint, by the size of the catalogue: children looked up, scored, the best kept.

WIDTH beams go down three levels with logits of chance, the same at every size, which must lead to the same beams. Each
round goes into other first codes than those before, so that no round finds its nodes in the cache because of another,
and meets the catalogues one after the other, so that what else the machine does meets them alike. One thread,
its processor time, and no model: what is timed is what of a step depends on the catalogue.
"""

import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmarks.catalog_data import Shape
from item_catalog.catalog import Catalog
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.request import ScoreSpace
from recall_service.engine.selection import Selection, select_beams

WIDTH = 400
PASSES = 5  # over all first codes; the first warms up
_FAVOUR = 100.0  # added to the logits of the first codes that a round goes into


def measure_selection(catalogs: Sequence[Catalog], shape: Shape, width: int = WIDTH) -> list[float]:
    """For each catalogue, the median processor seconds of a search. `width` is not above shape.num_visited."""
    size = shape.codebook_size
    level_tokens = [np.arange(size) + level * size for level in range(3)]
    constraints = [TrieConstraint(catalog.trie, level_tokens) for catalog in catalogs]
    visited = torch.as_tensor(shape.visited_codes.astype(np.int64))
    rounds = visited[: len(visited) // width * width].split(width)
    generator = torch.Generator().manual_seed(0)
    root_logits, *logits = (torch.randn(rows, size, generator=generator) for rows in (1, width, width))
    seconds: list[list[float]] = [[] for _ in catalogs]
    for number in range(PASSES):
        for codes in rounds:
            favoured = root_logits.index_add(1, codes, torch.full((1, width), _FAVOUR))
            beams = []
            for constraint, times in zip(constraints, seconds, strict=True):
                start = time.thread_time()
                levels = _descend(constraint, [favoured, *logits], width, size)
                if number:
                    times.append(time.thread_time() - start)
                beams.append(_sids(levels, size))
            if not all(torch.equal(found, beams[0]) for found in beams):
                raise RuntimeError("selection: other beams at another size; their times cannot be compared")
    return [statistics.median(times) for times in seconds]


def _descend(constraint: TrieConstraint, logits: list[Tensor], width: int, size: int) -> list[Selection]:
    scores, nodes = torch.zeros(1), torch.zeros(1, dtype=torch.int64)
    levels = []
    for level, level_logits in enumerate(logits):
        chosen = select_beams(
            level_logits,
            scores,
            nodes,
            level=level,
            width=width,
            constraint=constraint,
            score_space=ScoreSpace.CATALOG,
            with_ranks=False,
            first_token=level * size,
        )
        scores, nodes = scores[chosen.parents] + chosen.log_probs, chosen.nodes
        levels.append(chosen)
    return levels


def _sids(levels: list[Selection], size: int) -> Tensor:
    codes: list[Tensor] = []
    parents = torch.arange(len(levels[-1].tokens))
    for level in (2, 1, 0):
        codes.insert(0, levels[level].tokens[parents] - level * size)
        parents = levels[level].parents[parents]
    return torch.stack(codes, dim=1)
