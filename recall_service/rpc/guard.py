"""What surrounds every call: who calls, admission, its end in exactly one status, and who hears of it.

Knows nothing of what the call does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from recall_service.errors import DeadlineExpired, NotReady, PermissionDenied, RequestCancelled, Unauthenticated
from recall_service.rpc.admission import Admission
from recall_service.rpc.authentication import Authentication, Right
from recall_service.rpc.call import Call
from recall_service.rpc.observer import CallLog, CallTracer, RpcObserver
from recall_service.rpc.request_id import choose_request_id, metadata_request_id
from recall_service.rpc.status import STATUS_CODES, code_of, reason_of, status_of, trailers_of
from recall_service.serving.hooks import Observer


def caller_left(error: BaseException) -> bool:
    """Whether `error` means that the caller cancelled, ran out of time or lost the connection.

    grpc.aio then cancels the task of the call, and nobody waits for a status. A CancelledError in a task that nobody
    cancelled comes from a future cancelled inside the server: grpc.aio takes the two for the same and would send
    nothing, so that the caller waits until its deadline (grpc issue 29248).
    """
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def end_by_caller(context: grpc.aio.ServicerContext[Any, Any]) -> tuple[grpc.StatusCode, str]:
    """Code and reason of a call whose caller left: it ran out of time, or cancelled."""
    kind = DeadlineExpired if context.time_remaining() == 0 else RequestCancelled
    return STATUS_CODES[kind], kind.reason


class CallGuard:
    """Runs the body of a handler; whatever it raises becomes the call's status."""

    def __init__(
        self,
        authentication: Authentication,
        right: Right,
        admission: Admission,
        observer: Observer,
        rpc_observer: RpcObserver,
        call_log: CallLog,
        tracer: CallTracer,
    ) -> None:
        self._authentication, self._right = authentication, right
        self._admission = admission
        self._observer = observer
        self._rpc_observer = rpc_observer
        self._call_log = call_log
        self._tracer = tracer

    async def call(
        self,
        method: str,
        context: grpc.aio.ServicerContext[Any, Any],
        body: Callable[[Call], Awaitable[bytes]],
    ) -> bytes:
        """The answer of `body`, run as one call of `method`; it never runs for a call that is not let in."""
        started = time.perf_counter()
        metadata = context.invocation_metadata() or ()
        call = Call(choose_request_id(metadata_request_id(metadata)))
        trace = self._tracer.start(method, metadata)
        self._rpc_observer.rpc_started(method)
        code = grpc.StatusCode.OK
        try:
            call.client = self._name_of_caller(context)
            self._admit(context)
            return await body(call)
        except (Exception, asyncio.CancelledError) as error:
            if caller_left(error):
                code, call.reason = end_by_caller(context)
                raise
            code, call.reason = code_of(error), reason_of(error)
            status = status_of(error, call.request_id)
            trailers = trailers_of(error, status, context.time_remaining())
        finally:
            seconds, code_name = time.perf_counter() - started, code.name
            self._rpc_observer.rpc_handled(method, code_name, seconds)
            self._call_log.ended(method, code_name, seconds, call.facts)
            self._tracer.end(trace, code_name, call.facts)
            if call.on_end is not None:
                call.on_end(code, call.reason)
        return await context.abort(code, status.message, trailers)  # raises

    def _name_of_caller(self, context: grpc.aio.ServicerContext[Any, Any]) -> str:
        try:
            return self._authentication.admit(context, self._right).name
        except (Unauthenticated, PermissionDenied) as error:
            self._observer.rejected(error.reason.lower())
            raise

    def _admit(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            self._admission.enter()
        except NotReady:
            self._observer.rejected("not_ready")
            raise
        # Not at the end of the body: a call is inside until its response is sent, or draining could cut it off.
        context.add_done_callback(lambda _: self._admission.leave())  # type: ignore[arg-type]
