"""Answers to bytes and back, for a cache that replicas of different ages share: anything odd reads as a miss.

Knows no Redis. A value carries its format, the key it belongs under and a checksum; the checksum finds damage, it does
not prove who wrote the value. What belongs to one call (who served it, timings, rows run and skipped) is not stored.
"""

from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from recall_service.engine.request import ScoreSpace
from recall_service.serving.items_wire import encode_items
from recall_service.serving.query import RecallAnswer, ServedFrom, Timings
from recall_service.stubs.recall.v1 import cache_pb2

# Raise it when the meaning of a stored answer changes: older values then read as misses.
FORMAT_VERSION = 2


class StoredAnswer(NamedTuple):
    """What a value holds. fresh_until_unix_ms: by its writer's clock; 0: as long as it is kept."""

    answer: RecallAnswer
    fresh_until_unix_ms: int


def encode(answer: RecallAnswer, key: bytes, fresh_until_unix_ms: int = 0) -> bytes:
    """The value to store under `key`. Raises ValueError for a short answer: only complete ones are ever stored."""
    if answer.short_reason is not None:
        raise ValueError(f"answer: short ({answer.short_reason.value}); only complete answers are cached")
    payload = cache_pb2.CachedPayload(
        item_ids=answer.item_ids,
        scores=answer.scores.astype("<f8").tobytes(),
        num_levels=answer.sids.shape[1],
        sids=answer.sids.astype("<i4").tobytes(),
        step_log_probs=b"" if answer.step_log_probs is None else answer.step_log_probs.astype("<f4").tobytes(),
        step_ranks=b"" if answer.step_ranks is None else answer.step_ranks.astype("<i4").tobytes(),
        proven_count=answer.proven_count,
        bundle=answer.bundle,
        bundle_version=answer.bundle_version,
        catalog_version=answer.catalog_version,
        score_space=answer.score_space.name,
        beam_width=answer.beam_width,
        unknown_history_items=answer.unknown_history_items,
        unknown_excluded_items=answer.unknown_excluded_items,
    ).SerializeToString()
    return cache_pb2.CachedAnswer(
        format_version=FORMAT_VERSION,
        key_digest=key,
        payload_checksum=xxh3_64_intdigest(payload),
        payload=payload,
        fresh_until_unix_ms=fresh_until_unix_ms,
    ).SerializeToString()


def decode(value: bytes, key: bytes) -> StoredAnswer | None:
    """The answer stored in `value`, served from the shared cache; None unless it is whole and belongs to `key`.

    Its arrays are read-only views of the value.
    """
    try:
        envelope = cache_pb2.CachedAnswer.FromString(value)
        if (envelope.format_version, envelope.key_digest) != (FORMAT_VERSION, key):
            return None
        if envelope.payload_checksum != xxh3_64_intdigest(envelope.payload):
            return None
        answer = _answer(cache_pb2.CachedPayload.FromString(envelope.payload))
        return StoredAnswer(answer, envelope.fresh_until_unix_ms)
    except (DecodeError, ValueError, KeyError):
        return None


def _answer(payload: cache_pb2.CachedPayload) -> RecallAnswer:
    """Raises ValueError where array sizes disagree or a number is not finite, KeyError for an unknown score space."""
    num_items, num_levels = len(payload.item_ids), payload.num_levels
    scores = np.frombuffer(payload.scores, "<f8").reshape(num_items)
    sids = np.frombuffer(payload.sids, "<i4").reshape(num_items, num_levels)
    step_log_probs: NDArray[np.float32] | None = None
    step_ranks: NDArray[np.int32] | None = None
    if payload.step_log_probs or payload.step_ranks:
        step_log_probs = np.frombuffer(payload.step_log_probs, "<f4").reshape(num_items, num_levels)
        step_ranks = np.frombuffer(payload.step_ranks, "<i4").reshape(num_items, num_levels)
        _require(bool(np.isfinite(step_log_probs).all()), "a log-probability is not finite")
    _require(sids.size > 0, "no item or no level")
    _require(bool(np.isfinite(scores).all()), "a score is not finite")
    _require(payload.proven_count <= num_items, "more items proven than there are")
    item_ids = tuple(payload.item_ids)
    return RecallAnswer(
        item_ids=item_ids,
        scores=scores,
        sids=sids,
        step_log_probs=step_log_probs,
        step_ranks=step_ranks,
        items_wire=encode_items(item_ids, scores, sids, step_log_probs, step_ranks),
        short_reason=None,
        proven_count=payload.proven_count,
        served_from=ServedFrom.SHARED_CACHE,
        bundle=payload.bundle,
        bundle_version=payload.bundle_version,
        catalog_version=payload.catalog_version,
        score_space=ScoreSpace[payload.score_space],
        beam_width=payload.beam_width,
        unknown_history_items=payload.unknown_history_items,
        unknown_excluded_items=payload.unknown_excluded_items,
        rows_forwarded=0,
        rows_skipped=0,
        timings=Timings(),
    )


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
