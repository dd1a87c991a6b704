"""Answers in Python's words. Enums are given by name, without their prefix; what is unspecified is empty."""

from dataclasses import dataclass
from typing import Any

import grpc

from recall_service.client.errors import seconds_of
from recall_service.stubs.recall.v1 import recall_pb2

_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class RecalledItem:
    """One item. `score` sums the log-probabilities of its semantic ID `sid`; steps are empty unless asked for."""

    item_id: str
    score: float
    sid: tuple[int, ...]
    step_log_probs: tuple[float, ...]
    step_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """An answer: items, best first, and how it came about. Times are in seconds.

    short_reason: why there are fewer items than were asked for; empty when there are as many.
    proven_count: the first so many items are the model's true top of the whole catalogue, or of all that `where` and
        the exclusions leave of it.
    """

    request_id: str
    items: tuple[RecalledItem, ...]
    short_reason: str
    proven_count: int
    served_from: str
    bundle: str
    bundle_version: str
    catalog_version: str
    score_space: str
    beam_width: int
    unknown_history_items: int
    unknown_excluded_items: int
    rows_forwarded: int
    rows_skipped: int
    attribution_token: str
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class RecallFailure:
    """Why one question of a batch got no answer: what RecallClientError says of a call of its own.

    Violations stand in the message. limit is empty and retry_after_seconds None unless the server was too full.
    """

    code: grpc.StatusCode
    message: str
    reason: str
    request_id: str
    limit: str
    retry_after_seconds: float | None


def to_result(response: recall_pb2.RecallResponse) -> RecallResult:
    """A message as an answer."""
    timings = response.timings
    return RecallResult(
        request_id=response.request_id,
        items=tuple(map(_to_item, response.items)),
        short_reason=_name(recall_pb2.ShortReason, "SHORT_REASON_", response.completeness.short_reason),
        proven_count=response.proven_count,
        served_from=_name(recall_pb2.ServedFrom, "SERVED_FROM_", response.served_from),
        bundle=response.bundle,
        bundle_version=response.bundle_version,
        catalog_version=response.catalog_version,
        score_space=_name(recall_pb2.ScoreSpace, "SCORE_SPACE_", response.score_space),
        beam_width=response.beam_width,
        unknown_history_items=response.unknown_history_items,
        unknown_excluded_items=response.unknown_excluded_items,
        rows_forwarded=response.rows_forwarded,
        rows_skipped=response.rows_skipped,
        attribution_token=response.attribution_token,
        queue_seconds=timings.queue_us * 1e-6,
        prefill_seconds=timings.prefill_us * 1e-6,
        decode_seconds=timings.decode_us * 1e-6,
        total_seconds=timings.total_us * 1e-6,
    )


def to_outcomes(response: recall_pb2.BatchRecallResponse) -> list[RecallResult | RecallFailure]:
    """What became of each question of a batch, in their order."""
    return [
        to_result(result.response) if result.HasField("response") else _to_failure(result.failure)
        for result in response.results
    ]


def _to_item(item: recall_pb2.RecalledItem) -> RecalledItem:
    """A slice copies a field at once; its elements one by one would cost a third of the whole result more."""
    sid, step_log_probs, step_ranks = item.sid[:], item.step_log_probs[:], item.step_ranks[:]
    return RecalledItem(item.item_id, item.score, tuple(sid), tuple(step_log_probs), tuple(step_ranks))


def _to_failure(failure: recall_pb2.RecallFailure) -> RecallFailure:
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    retry_after = seconds_of(failure.retry_after) if failure.HasField("retry_after") else None
    return RecallFailure(code, failure.message, failure.reason, failure.request_id, failure.limit, retry_after)


def _name(enum: Any, prefix: str, value: int) -> str:
    """A later server may send a value of which only the number is known here."""
    if not value:
        return ""
    return str(enum.Name(value)).removeprefix(prefix) if value in enum.values() else str(value)
