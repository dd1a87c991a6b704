"""The contract's messages as `Answered`; enums by the contract's names without their prefix, as the client has them."""

from collections.abc import Iterable

from recall_service.replay.asked import Answered
from recall_service.request_log.names import SERVED_FROM, SHORT_REASONS
from recall_service.stubs.recall.v1 import recall_pb2, request_log_pb2


def from_response(response: recall_pb2.RecallResponse) -> Answered:
    """What a server answered."""
    items = response.items
    return _answered(response, [item.item_id for item in items], [item.score for item in items])


def from_log(answer: request_log_pb2.LoggedAnswer) -> Answered:
    """What a request log says was answered."""
    return _answered(answer, answer.item_ids, answer.scores)


def _answered(
    message: recall_pb2.RecallResponse | request_log_pb2.LoggedAnswer, item_ids: Iterable[str], scores: Iterable[float]
) -> Answered:
    """A server of a later version may send an enum's value of which only the number is known here."""
    short_reason, served_from = message.completeness.short_reason, message.served_from
    return Answered(
        item_ids=tuple(item_ids),
        scores=tuple(scores),
        proven_count=message.proven_count,
        short_reason=SHORT_REASONS.get(short_reason, str(short_reason)),
        served_from=SERVED_FROM.get(served_from, str(served_from)),
        bundle_version=message.bundle_version,
        catalog_version=message.catalog_version,
    )
