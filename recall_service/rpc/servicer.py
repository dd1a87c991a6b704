"""recall.v1.RecallService: from bytes to a question, to the backend, and back to bytes.

Whether a call is let in, and how its errors become a status, is the guard's business. Messages are read here and not
by gRPC, so that nothing of a call that is not let in is read at all.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import grpc

from recall_service import __version__
from recall_service.errors import DeadlineExpired, InvalidRequest, UnknownVersion
from recall_service.rpc.backend import RecallBackend
from recall_service.rpc.batch_wire import Outcome, encode_batch
from recall_service.rpc.call import Call
from recall_service.rpc.convert import encode_response, to_bundle_message, to_query
from recall_service.rpc.guard import CallGuard, caller_left, end_by_caller
from recall_service.rpc.limits import Limits
from recall_service.rpc.observer import CallTracer
from recall_service.rpc.recall_log import RecallLog, RecallUnderWay
from recall_service.rpc.request_id import choose_request_id, random_id
from recall_service.rpc.status import code_of, failure_of, reason_of
from recall_service.rpc.validation import Request, check_batch, check_recall, find_bundle, read_message
from recall_service.serving.hooks import Observer
from recall_service.serving.query import RecallQuery
from recall_service.stubs.recall.v1 import recall_pb2

Context = grpc.aio.ServicerContext[Any, Any]
Checked = TypeVar("Checked")


class RecallServicer:
    """Answers the three methods from `backend`. Requests and responses are bytes."""

    def __init__(
        self,
        backend: RecallBackend,
        guard: CallGuard,
        limits: Limits,
        observer: Observer,
        tracer: CallTracer,
        recall_log: RecallLog,
        *,
        max_batch_requests: int,
    ) -> None:
        self._backend = backend
        self._guard = guard
        self._limits = limits
        self._observer = observer
        self._tracer = tracer
        self._recall_log = recall_log
        self._max_batch_requests = max_batch_requests

    def handlers(self) -> dict[str, "grpc.RpcMethodHandler[bytes, bytes]"]:
        """The methods by the names of the contract. They read and write messages themselves."""
        methods = {"Recall": self.recall, "BatchRecall": self.batch_recall, "GetServingInfo": self.get_serving_info}
        return {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}

    async def recall(self, request: bytes, context: Context) -> bytes:
        """Next items for one user."""
        return await self._guard.call("Recall", context, partial(self._recall, request, context))

    async def batch_recall(self, request: bytes, context: Context) -> bytes:
        """Several recalls at once. An entry without an id goes by the call's id and its own position."""
        return await self._guard.call("BatchRecall", context, partial(self._batch_recall, request, context))

    async def get_serving_info(self, request: bytes, context: Context) -> bytes:
        """Bundles, versions and limits."""
        return await self._guard.call("GetServingInfo", context, partial(self._serving_info, request))

    async def _recall(self, wire: bytes, context: Context, call: Call) -> bytes:
        request = self._read(recall_pb2.RecallRequest, wire)
        call.request_id, call.scene = choose_request_id(request.request_id, call.request_id), request.scene
        recall = RecallUnderWay(request, call.request_id, call.client, _deadline(context))
        call.on_end = partial(recall.report, self._recall_log)
        response = await self._answer(recall)
        call.answer = recall.answer
        return response

    async def _batch_recall(self, wire: bytes, context: Context, call: Call) -> bytes:
        entries = self._read(recall_pb2.BatchRecallRequest, wire).requests
        self._validate(lambda: check_batch(len(entries), self._max_batch_requests))
        deadline = _deadline(context)
        recalls = [
            RecallUnderWay(
                entry,
                choose_request_id(entry.request_id, f"{call.request_id}-{position}"),
                call.client,
                deadline,
                in_batch=True,
            )
            for position, entry in enumerate(entries)
        ]
        answers = (self._answer_entry(recall, position, context) for position, recall in enumerate(recalls))
        call.outcomes = await asyncio.gather(*answers)
        return encode_batch(call.outcomes)

    async def _serving_info(self, wire: bytes, call: Call) -> bytes:
        del call  # says nothing of itself
        self._read(recall_pb2.GetServingInfoRequest, wire)
        return recall_pb2.GetServingInfoResponse(
            server_version=__version__,
            bundles=[to_bundle_message(bundle) for bundle in self._backend.bundles()],
            max_batch_requests=self._max_batch_requests,
        ).SerializeToString()

    async def _answer_entry(self, recall: RecallUnderWay, position: int, context: Context) -> Outcome:
        """An entry of a batch fails alone, unless the caller of the whole batch left."""
        code, reason = grpc.StatusCode.OK, ""
        try:
            with self._tracer.entry(position):
                return await self._answer(recall, prefix=f"requests[{position}].")
        except (Exception, asyncio.CancelledError) as error:
            if caller_left(error):
                code, reason = end_by_caller(context)
                raise
            code, reason = code_of(error), reason_of(error)
            return failure_of(error, recall.request_id)
        finally:
            recall.report(self._recall_log, code, reason)

    async def _answer(self, recall: RecallUnderWay, *, prefix: str = "") -> bytes:
        query = self._question(recall.request, recall.deadline, prefix)
        with self._limits.enter(recall.client, recall.request.scene):
            answer = await self._backend.recall(query, recall.request.scene)
        recall.answered(answer)
        started = time.perf_counter()
        response = encode_response(
            answer,
            request_id=recall.request_id,
            attribution_token=random_id(),
            total_seconds=recall.total_seconds,
        )
        self._observer.stage("serialize", time.perf_counter() - started)
        return response

    def _question(self, request: recall_pb2.RecallRequest, deadline: float | None, prefix: str) -> RecallQuery:
        history = self._validate(
            lambda: check_recall(request, find_bundle(self._backend.bundles(), request.bundle), prefix)
        )
        if deadline is not None and deadline <= time.monotonic():
            self._observer.rejected("deadline")
            raise DeadlineExpired("queue")
        return to_query(request, history, deadline)

    def _read(self, kind: type[Request], wire: bytes) -> Request:
        """Raises InvalidRequest for what is no message of that kind."""
        try:
            return read_message(kind, wire)
        except InvalidRequest:
            self._observer.rejected("invalid")
            raise

    def _validate(self, check: Callable[[], Checked]) -> Checked:
        """What `check` returns; it is timed, and what it refuses is counted."""
        started = time.perf_counter()
        try:
            return check()
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
