"""What a caller may count on, whatever it sent: a response that keeps the contract, or a status that blames it."""

from typing import Any

import grpc
from google.rpc.status_pb2 import Status

from recall_service.stubs.recall.v1 import recall_pb2
from tests.fuzz.call_context import Aborted
from tests.fuzz.hostile import Broken

_MAX_STATUS_BYTES = 8 * 1024  # what clients accept by default

# NOT_FOUND and FAILED_PRECONDITION: a bundle that is not served, a history that the catalogue does not know.
RECALL_CODES = frozenset(
    {
        *(grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION),
        *(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED),
    }
)
# NOT_FOUND and FAILED_PRECONDITION: a bundle that is not served, one that has no store.
ADMIN_CODES = frozenset(
    {
        *(grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION),
        grpc.StatusCode.UNAUTHENTICATED,
    }
)


def check_status(aborted: Aborted, allowed: frozenset[grpc.StatusCode]) -> None:
    """Raises Broken unless the status is one of those, and fit to travel."""
    if aborted.code not in allowed:
        raise Broken(f"ended as {aborted}") from aborted.__context__
    if aborted.num_bytes > _MAX_STATUS_BYTES:
        raise Broken(f"a status of {aborted.num_bytes:,} bytes, which no client accepts")
    details = aborted.trailers["grpc-status-details-bin"]
    if not isinstance(details, bytes) or Status.FromString(details).code != aborted.code.value[0]:
        raise Broken("status and its details disagree")


def check_response(response: Any) -> None:
    """Raises Broken unless the message says what the contract says that it says."""
    if isinstance(response, recall_pb2.BatchRecallResponse):
        for result in response.results:
            _check_result(result)
    elif isinstance(response, recall_pb2.RecallResponse):
        _check_answer(response)
    elif "bundles" in response.DESCRIPTOR.fields_by_name and not response.bundles:
        raise Broken("no bundle is served")


def _check_result(result: recall_pb2.BatchRecallResult) -> None:
    if result.HasField("response"):
        _check_answer(result.response)
    elif result.failure.code not in {code.value[0] for code in RECALL_CODES}:
        raise Broken(f"an entry of a batch ended as {result}")


def _check_answer(response: recall_pb2.RecallResponse) -> None:
    ids = [item.item_id for item in response.items]
    scores = [item.score for item in response.items]
    is_complete = response.completeness.state == recall_pb2.COMPLETENESS_STATE_COMPLETE
    if not response.request_id or not response.attribution_token:
        raise Broken("an answer without an id")
    if len(set(ids)) != len(ids) or sorted(scores, reverse=True) != scores or not all(score <= 0 for score in scores):
        raise Broken(f"items not unique, not sorted, or of scores that are none: {ids} {scores}")
    if is_complete == bool(response.completeness.short_reason) or (is_complete and not ids):
        raise Broken(f"neither complete nor short: {response.completeness} with {len(ids)} items")
    if response.proven_count > len(ids):
        raise Broken("more items proven than there are")
