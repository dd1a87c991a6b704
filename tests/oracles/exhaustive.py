"""O1: every item of a catalogue, each scored on its own by teacher forcing. What a perfect search would answer."""

from collections.abc import Sequence

from transformers import PreTrainedModel

from recall_service.engine.request import ScoreSpace
from tests.oracles.recompute_beam import Beam, log_sum_exp
from tests.oracles.teacher_forcing import path_logits
from tests.oracles.tries import Catalogue


def score_every_item(
    model: PreTrainedModel, prompt: Sequence[int], catalogue: Catalogue, space: ScoreSpace
) -> list[Beam]:
    """All items, best first, ties by path of codes."""
    sids = sorted(catalogue.sids)
    paths = [catalogue.path(sid) for sid in sids]
    beams = []
    for path, steps in zip(paths, path_logits(model, prompt, paths).tolist(), strict=True):
        log_probs, ranks = [], []
        for level, row in enumerate(steps):
            scored = {
                ScoreSpace.VOCABULARY: row,
                ScoreSpace.CODEBOOK: [row[token] for token in catalogue.level_tokens[level]],
                ScoreSpace.CATALOG: [row[token] for token in catalogue.children(path[:level])],
            }[space]
            log_probs.append(row[path[level]] - log_sum_exp(scored))
            ranks.append(1 + sum(other > row[path[level]] for other in scored))
        beams.append(Beam(path, sum(log_probs), tuple(log_probs), tuple(ranks)))
    return sorted(beams, key=lambda beam: -beam.score)  # a stable sort keeps the order of codes among ties
