"""O1: every item of a catalogue, each scored on its own by teacher forcing. What a perfect search would answer."""

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedModel

from recall_service.engine.request import ScoreSpace
from tests.oracles.recompute_beam import Beam, Path
from tests.oracles.teacher_forcing import path_logits
from tests.oracles.tries import Catalogue


def score_every_item(
    model: PreTrainedModel, prompt: Sequence[int], catalogue: Catalogue, space: ScoreSpace
) -> list[Beam]:
    """All items, best first, ties by path of codes. In fp64 from the fp32 logits."""
    paths = [catalogue.path(sid) for sid in sorted(catalogue.sids)]
    logits, tokens = path_logits(model, prompt, paths).astype(np.float64), np.array(paths)
    log_probs, ranks = np.empty(tokens.shape), np.empty(tokens.shape, np.int64)
    for level in range(catalogue.num_levels):
        in_space = np.zeros(logits[:, level].shape, bool)  # [items, vocab]
        for item, path in enumerate(paths):
            in_space[item, _space(catalogue, path[:level], space)] = True
        scored = np.where(in_space, logits[:, level], -np.inf)
        own = np.take_along_axis(scored, tokens[:, level, None], axis=1)
        log_probs[:, level] = own[:, 0] - np.logaddexp.reduce(scored, axis=1)
        ranks[:, level] = 1 + (scored > own).sum(1)
    beams = [
        Beam(path, float(steps.sum()), tuple(steps.tolist()), tuple(places.tolist()))
        for path, steps, places in zip(paths, log_probs, ranks, strict=True)
    ]
    return sorted(beams, key=lambda beam: -beam.score)  # a stable sort keeps the order of codes among ties


def _space(catalogue: Catalogue, prefix: Path, space: ScoreSpace) -> slice | list[int]:
    """The tokens that log-probabilities after a prefix are normalised over."""
    if space is ScoreSpace.VOCABULARY:
        return slice(None)
    return catalogue.level_tokens[len(prefix)] if space is ScoreSpace.CODEBOOK else catalogue.children(prefix)
