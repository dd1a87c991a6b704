"""recall.v1.RecallService: from a message to a question, to the backend, and back to a message.

Whether a call is let in, and how its errors become a status, is the guard's business.
"""

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from recall_service import __version__
from recall_service.errors import DeadlineExpired, InvalidRequest, UnknownVersion
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.convert import to_bundle_message, to_failure, to_query, to_response
from recall_service.rpc.guard import CallGuard, caller_left
from recall_service.rpc.request_id import request_id_of
from recall_service.rpc.status import status_of
from recall_service.rpc.validation import check_batch, check_recall, find_bundle
from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallQuery
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc

if TYPE_CHECKING:
    import grpc

    Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class RecallServicer(recall_pb2_grpc.RecallServiceServicer):
    """Answers the three methods from `backend`."""

    def __init__(
        self, backend: RecallBackend, guard: CallGuard, observer: Observer, *, max_batch_requests: int
    ) -> None:
        self._backend = backend
        self._guard = guard
        self._observer = observer
        self._max_batch_requests = max_batch_requests

    async def Recall(  # noqa: N802 - named by the contract
        self, request: recall_pb2.RecallRequest, context: "Context"
    ) -> recall_pb2.RecallResponse:
        """Next items for one user."""
        request_id = request_id_of(request.request_id, context)
        async with self._guard.call("Recall", context, request_id):
            return await self._answer(request, request_id, _deadline_of(context))

    async def BatchRecall(  # noqa: N802 - named by the contract
        self, request: recall_pb2.BatchRecallRequest, context: "Context"
    ) -> recall_pb2.BatchRecallResponse:
        """Several recalls at once; an entry without an id goes by the call's id and its position."""
        call_id = request_id_of("", context)
        async with self._guard.call("BatchRecall", context, call_id):
            self._check_batch(len(request.requests))
            deadline = _deadline_of(context)
            results = await asyncio.gather(
                *(
                    self._answer_entry(entry, position, entry.request_id or f"{call_id}-{position}", deadline)
                    for position, entry in enumerate(request.requests)
                )
            )
            return recall_pb2.BatchRecallResponse(results=results)

    async def GetServingInfo(  # noqa: N802 - named by the contract
        self, request: recall_pb2.GetServingInfoRequest, context: "Context"
    ) -> recall_pb2.GetServingInfoResponse:
        """Bundles, versions and limits."""
        async with self._guard.call("GetServingInfo", context, request_id_of("", context)):
            return recall_pb2.GetServingInfoResponse(
                server_version=__version__,
                bundles=[to_bundle_message(bundle) for bundle in self._backend.bundles()],
                max_batch_requests=self._max_batch_requests,
            )
