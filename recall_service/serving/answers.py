"""From the beams of a search to an answer."""

import numpy as np

from recall_service.engine.request import BeamResult
from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.items import items_of_beams
from recall_service.serving.items_wire import encode_items
from recall_service.serving.narrowing import Narrowing
from recall_service.serving.query import RecallAnswer, RecallQuery, ServedFrom, Timings


def to_answer(
    query: RecallQuery, live: LiveBundle, narrowing: Narrowing | None, result: BeamResult, num_unknown_history: int
) -> RecallAnswer:
    """The answer to a question whose defaults are resolved. narrowing: None where nothing was to be left out."""
    found = items_of_beams(result, live.bundle.catalog, query.num_items, narrowing)
    assert result.leaves is not None
    scores = result.scores[found.beams].astype(np.float64)
    sids = live.bundle.catalog.trie.leaf_sids(result.leaves[found.beams])
    step_log_probs = result.log_probs[found.beams] if query.include_steps else None
    step_ranks = result.ranks[found.beams] if result.ranks is not None else None
    return RecallAnswer(
        item_ids=found.item_ids,
        scores=scores,
        sids=sids,
        step_log_probs=step_log_probs,
        step_ranks=step_ranks,
        items_wire=encode_items(found.item_ids, scores, sids, step_log_probs, step_ranks),
        short_reason=found.short_reason,
        proven_count=found.proven_count,
        served_from=ServedFrom.ENGINE,
        bundle=live.info.name,
        bundle_version=live.info.version,
        catalog_version=live.info.catalog_version,
        score_space=live.info.score_space,
        beam_width=query.beam_width,
        unknown_history_items=num_unknown_history,
        unknown_excluded_items=0 if narrowing is None else narrowing.num_unknown_excluded,
        rows_forwarded=result.rows_forwarded,
        rows_skipped=result.rows_skipped,
        timings=Timings(result.queue_seconds, result.prefill_seconds, result.decode_seconds),
    )


def no_beams(num_levels: int, *, with_ranks: bool) -> BeamResult:
    """What a search finds where nothing is left to be found; none need be made."""
    nothing = np.empty((0, num_levels))
    return BeamResult(
        tokens=nothing.astype(np.int64),
        lengths=np.empty(0, np.int64),
        scores=np.empty(0, np.float32),
        log_probs=nothing.astype(np.float32),
        ranks=nothing.astype(np.int32) if with_ranks else None,
        leaves=np.empty(0, np.int64),
        bound=-np.inf,
        proven_count=0,
        rows_forwarded=0,
        rows_skipped=0,
        cached_prompt_tokens=0,
        queue_seconds=0.0,
        prefill_seconds=0.0,
        decode_seconds=0.0,
        submitted=0.0,
        steps=(),
    )
