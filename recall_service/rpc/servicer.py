"""recall.v1.RecallService: from a message to a question, to the backend, and back to a message.

Whether a call is let in, and how its errors become a status, is the guard's business.
"""

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import grpc

from recall_service import __version__
from recall_service.errors import DeadlineExpired, InvalidRequest, UnknownVersion
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.convert import to_bundle_message, to_query, to_response
from recall_service.rpc.guard import CallGuard, caller_left, end_by_caller
from recall_service.rpc.observer import CallTracer
from recall_service.rpc.recall_log import RecallLog, RecallUnderWay
from recall_service.rpc.request_id import choose_request_id, metadata_request_id
from recall_service.rpc.status import code_of, failure_of, reason_of
from recall_service.rpc.validation import check_batch, check_recall, find_bundle
from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallQuery
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class RecallServicer(recall_pb2_grpc.RecallServiceServicer):
    """Answers the three methods from `backend`; their names are the contract's."""

    def __init__(
        self,
        backend: RecallBackend,
        guard: CallGuard,
        observer: Observer,
        tracer: CallTracer,
        recall_log: RecallLog,
        *,
        max_batch_requests: int,
    ) -> None:
        self._backend = backend
        self._guard = guard
        self._observer = observer
        self._tracer = tracer
        self._recall_log = recall_log
        self._max_batch_requests = max_batch_requests

    async def Recall(  # noqa: N802
        self, request: recall_pb2.RecallRequest, context: Context
    ) -> recall_pb2.RecallResponse:
        """Next items for one user."""
        request_id = choose_request_id(request.request_id, metadata_request_id(context))
        recall = RecallUnderWay(request, request_id, _deadline(context))
        async with self._guard.call("Recall", context, request_id, partial(recall.report, self._recall_log)) as call:
            call.scene = request.scene
            call.response = await self._answer(recall)
            return call.response

    async def BatchRecall(  # noqa: N802
        self, request: recall_pb2.BatchRecallRequest, context: Context
    ) -> recall_pb2.BatchRecallResponse:
        """Several recalls at once. An entry without an id goes by the call's id and its own position."""
        call_id = choose_request_id(metadata_request_id(context))
        async with self._guard.call("BatchRecall", context, call_id) as call:
            with self._validating():
                check_batch(len(request.requests), self._max_batch_requests)
            deadline = _deadline(context)
            recalls = [
                RecallUnderWay(
                    entry, choose_request_id(entry.request_id, f"{call_id}-{position}"), deadline, in_batch=True
                )
                for position, entry in enumerate(request.requests)
            ]
            entries = (self._answer_entry(recall, position, context) for position, recall in enumerate(recalls))
            call.results = await asyncio.gather(*entries)
            return recall_pb2.BatchRecallResponse(results=call.results)

    async def GetServingInfo(  # noqa: N802
        self, request: recall_pb2.GetServingInfoRequest, context: Context
    ) -> recall_pb2.GetServingInfoResponse:
        """Bundles, versions and limits."""
        del request  # has no fields
        async with self._guard.call("GetServingInfo", context, choose_request_id(metadata_request_id(context))):
            return recall_pb2.GetServingInfoResponse(
                server_version=__version__,
                bundles=[to_bundle_message(bundle) for bundle in self._backend.bundles()],
                max_batch_requests=self._max_batch_requests,
            )

    async def _answer_entry(
        self, recall: RecallUnderWay, position: int, context: Context
    ) -> recall_pb2.BatchRecallResult:
        """An entry of a batch fails alone, unless the caller of the whole batch left."""
        code, reason = grpc.StatusCode.OK, ""
        try:
            with self._tracer.entry(position):
                response = await self._answer(recall, prefix=f"requests[{position}].")
        except (Exception, asyncio.CancelledError) as error:
            if caller_left(error):
                code, reason = end_by_caller(context)
                raise
            code, reason = code_of(error), reason_of(error)
            return recall_pb2.BatchRecallResult(failure=failure_of(error, recall.request_id))
        finally:
            recall.report(self._recall_log, code, reason)
        return recall_pb2.BatchRecallResult(response=response)

    async def _answer(self, recall: RecallUnderWay, *, prefix: str = "") -> recall_pb2.RecallResponse:
        query = self._question(recall.request, recall.deadline, prefix)
        recall.answer = answer = await self._backend.recall(query, recall.request.scene)
        started = time.perf_counter()
        response = to_response(answer, request_id=recall.request_id, attribution_token=secrets.token_urlsafe(16))
        self._observer.stage("serialize", time.perf_counter() - started)
        return response

    def _question(self, request: recall_pb2.RecallRequest, deadline: float | None, prefix: str) -> RecallQuery:
        with self._validating():
            check_recall(request, find_bundle(self._backend.bundles(), request.bundle), prefix)
        if deadline is not None and deadline <= time.monotonic():
            self._observer.rejected("deadline")
            raise DeadlineExpired("queue")
        return to_query(request, deadline)

    @contextmanager
    def _validating(self) -> Iterator[None]:
        """Time the body, and count what it refuses."""
        started = time.perf_counter()
        try:
            yield
        except (InvalidRequest, UnknownVersion):
            self._observer.rejected("invalid")
            raise
        finally:
            self._observer.stage("validate", time.perf_counter() - started)


def _deadline(context: Context) -> float | None:
    """The call's deadline in seconds of `time.monotonic()`."""
    # The annotation of grpc.aio does not own up to the None of a call without deadline.
    remaining = cast("float | None", context.time_remaining())
    return None if remaining is None else time.monotonic() + remaining
