"""Between the wire's messages and the service's own words. Trusts that requests were validated."""

from functools import lru_cache

from item_catalog.attributes import AttributeKind
from recall_service.engine.request import Priority, ScoreSpace, SearchMode
from recall_service.rpc.filter_message import to_filter
from recall_service.serving.query import (
    BundleInfo,
    CacheMode,
    RecallAnswer,
    RecallQuery,
    ServedFrom,
    ShortReason,
    Timings,
)
from recall_service.stubs.recall.v1 import recall_pb2, request_log_pb2

_CACHE_MODES = {
    recall_pb2.CACHE_MODE_UNSPECIFIED: CacheMode.USE,
    recall_pb2.CACHE_MODE_USE: CacheMode.USE,
    recall_pb2.CACHE_MODE_REFRESH: CacheMode.REFRESH,
    recall_pb2.CACHE_MODE_BYPASS: CacheMode.BYPASS,
}
_SEARCH_MODES = {
    recall_pb2.SEARCH_MODE_UNSPECIFIED: SearchMode.BEAM,
    recall_pb2.SEARCH_MODE_BEAM: SearchMode.BEAM,
    recall_pb2.SEARCH_MODE_PROVEN: SearchMode.PROVEN,
}
_PRIORITIES = {
    recall_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    recall_pb2.PRIORITY_LOW: Priority.LOW,
    recall_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    recall_pb2.PRIORITY_HIGH: Priority.HIGH,
}
_SERVED_FROM = {
    ServedFrom.ENGINE: recall_pb2.SERVED_FROM_ENGINE,
    ServedFrom.LOCAL_CACHE: recall_pb2.SERVED_FROM_LOCAL_CACHE,
    ServedFrom.SHARED_CACHE: recall_pb2.SERVED_FROM_SHARED_CACHE,
}
_SHORT_REASON = {
    ShortReason.CATALOG_EXHAUSTED: recall_pb2.SHORT_REASON_CATALOG_EXHAUSTED,
    ShortReason.BEAM_TOO_NARROW: recall_pb2.SHORT_REASON_BEAM_TOO_NARROW,
    ShortReason.FILTER_TOO_NARROW: recall_pb2.SHORT_REASON_FILTER_TOO_NARROW,
}
_COMPLETE = recall_pb2.Completeness(state=recall_pb2.COMPLETENESS_STATE_COMPLETE)
_SCORE_SPACE = {
    ScoreSpace.VOCABULARY: recall_pb2.SCORE_SPACE_VOCABULARY,
    ScoreSpace.CODEBOOK: recall_pb2.SCORE_SPACE_CODEBOOK,
    ScoreSpace.CATALOG: recall_pb2.SCORE_SPACE_CATALOG,
}
_ATTRIBUTE_TYPE = {
    AttributeKind.TEXT: recall_pb2.ATTRIBUTE_TYPE_TEXT,
    AttributeKind.INTEGER: recall_pb2.ATTRIBUTE_TYPE_INTEGER,
    AttributeKind.NUMBER: recall_pb2.ATTRIBUTE_TYPE_NUMBER,
    AttributeKind.BOOLEAN: recall_pb2.ATTRIBUTE_TYPE_BOOLEAN,
}


def to_query(request: recall_pb2.RecallRequest, history: tuple[str, ...], deadline: float | None) -> RecallQuery:
    """A validated request as a question.

    history: as validation has read it, empty for a prompt. deadline: in seconds of `time.monotonic()`.
    """
    return RecallQuery(
        history=history or None,
        prompt=None if history else tuple(request.prompt.token_ids),
        bundle=request.bundle,
        num_items=request.num_items,
        beam_width=request.beam_width,
        filter=to_filter(request.filter) if request.filter.predicates else None,
        exclude_item_ids=tuple(request.exclude_item_ids),
        exclude_history=request.exclude_history,
        search_mode=_SEARCH_MODES[request.search_mode],
        cache_mode=_CACHE_MODES[request.cache_mode],
        include_steps=request.include_steps,
        priority=_PRIORITIES[request.priority],
        deadline=deadline,
    )


def encode_response(answer: RecallAnswer, *, request_id: str, attribution_token: str, total_seconds: float) -> bytes:
    """An answer as the serialised RecallResponse that is sent. total_seconds: since the question came."""
    of_this_call = recall_pb2.RecallResponse(request_id=request_id, attribution_token=attribution_token)
    _fill_timings(answer.timings, total_seconds, of_this_call.timings)
    facts = _encode_facts(
        answer.short_reason,
        answer.proven_count,
        answer.served_from,
        answer.bundle,
        answer.bundle_version,
        answer.catalog_version,
        answer.score_space,
        answer.beam_width,
        answer.unknown_history_items,
        answer.unknown_excluded_items,
        answer.rows_forwarded,
        answer.rows_skipped,
    )
    return of_this_call.SerializeToString() + facts + answer.items_wire


@lru_cache(maxsize=1024)
def _encode_facts(
    short_reason: ShortReason | None,
    proven_count: int,
    served_from: ServedFrom,
    bundle: str,
    bundle_version: str,
    catalog_version: str,
    score_space: ScoreSpace,
    beam_width: int,
    unknown_history_items: int,
    unknown_excluded_items: int,
    rows_forwarded: int,
    rows_skipped: int,
) -> bytes:
    """What is said of an answer as a whole. Cached ones have cost no rows, so that most say one of a few things."""
    return recall_pb2.RecallResponse(
        completeness=_completeness(short_reason),
        proven_count=proven_count,
        served_from=_SERVED_FROM[served_from],
        bundle=bundle,
        bundle_version=bundle_version,
        catalog_version=catalog_version,
        score_space=_SCORE_SPACE[score_space],
        beam_width=beam_width,
        unknown_history_items=unknown_history_items,
        unknown_excluded_items=unknown_excluded_items,
        rows_forwarded=rows_forwarded,
        rows_skipped=rows_skipped,
    ).SerializeToString()


def fill_logged_answer(answer: RecallAnswer, total_seconds: float, message: request_log_pb2.LoggedAnswer) -> None:
    """Put the facts of an answer that the request log keeps into `message`, in place: a copy would cost as much."""
    message.item_ids.extend(answer.item_ids)
    message.scores.extend(answer.scores.tolist())
    message.proven_count = answer.proven_count
    message.served_from = _SERVED_FROM[answer.served_from]
    message.completeness.CopyFrom(_completeness(answer.short_reason))
    message.bundle = answer.bundle
    message.bundle_version = answer.bundle_version
    message.catalog_version = answer.catalog_version
    message.score_space = _SCORE_SPACE[answer.score_space]
    message.beam_width = answer.beam_width
    message.unknown_history_items = answer.unknown_history_items
    message.unknown_excluded_items = answer.unknown_excluded_items
    _fill_timings(answer.timings, total_seconds, message.timings)


def _completeness(short_reason: ShortReason | None) -> recall_pb2.Completeness:
    if short_reason is None:
        return _COMPLETE
    return recall_pb2.Completeness(state=recall_pb2.COMPLETENESS_STATE_SHORT, short_reason=_SHORT_REASON[short_reason])


def _fill_timings(timings: Timings, total_seconds: float, message: recall_pb2.Timings) -> None:
    message.queue_us = round(timings.queue_seconds * 1e6)
    message.prefill_us = round(timings.prefill_seconds * 1e6)
    message.decode_us = round(timings.decode_seconds * 1e6)
    message.total_us = round(total_seconds * 1e6)


def to_bundle_message(bundle: BundleInfo) -> recall_pb2.BundleInfo:
    """What callers may know of a bundle, as a message."""
    return recall_pb2.BundleInfo(
        name=bundle.name,
        version=bundle.version,
        catalog_version=bundle.catalog_version,
        catalog_items=bundle.catalog_items,
        codebook_sizes=bundle.codebook_sizes,
        score_space=_SCORE_SPACE[bundle.score_space],
        default_beam_width=bundle.default_beam_width,
        max_beam_width=bundle.max_beam_width,
        default_num_items=bundle.default_num_items,
        max_num_items=bundle.max_num_items,
        max_prompt_tokens=bundle.max_prompt_tokens,
        max_history=bundle.max_history,
        attributes=[
            recall_pb2.AttributeInfo(name=name, type=_ATTRIBUTE_TYPE[kind]) for name, kind in bundle.attributes
        ],
    )
