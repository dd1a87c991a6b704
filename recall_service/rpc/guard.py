"""What surrounds every call to RecallService: admission, its end in exactly one status, and who hears of both.

Knows nothing of what the call does.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc_status import rpc_status

from recall_service.errors import DeadlineExpired, NotReady, RequestCancelled
from recall_service.rpc.admission import Admission
from recall_service.rpc.call import Call
from recall_service.rpc.observer import CallLog, CallTracer, RpcObserver
from recall_service.rpc.status import STATUS_CODES, code_of, reason_of, status_of
from recall_service.serving.hooks import Observer


def caller_left(error: BaseException) -> bool:
    """Whether `error` means that the caller cancelled, ran out of time or lost the connection.

    grpc.aio then cancels the task of the call, and nobody waits for a status. A CancelledError in a task that nobody
    cancelled comes from a future cancelled inside the server: grpc.aio takes the two for the same and would send
    nothing, so that the caller waits until its deadline (grpc issue 29248).
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def end_by_caller(context: grpc.aio.ServicerContext[Any, Any]) -> tuple[grpc.StatusCode, str]:
    """Code and reason of a call whose caller left: it ran out of time, or cancelled."""
    kind = DeadlineExpired if context.time_remaining() == 0 else RequestCancelled
    return STATUS_CODES[kind], kind.reason


class CallGuard:
    """Wraps the body of a handler; whatever is raised inside becomes the call's status."""

    def __init__(
        self,
        admission: Admission,
        observer: Observer,
        rpc_observer: RpcObserver,
        call_log: CallLog,
        tracer: CallTracer,
    ) -> None:
        self._admission = admission
        self._observer = observer
        self._rpc_observer = rpc_observer
        self._call_log = call_log
        self._tracer = tracer

    @asynccontextmanager
    async def call(
        self,
        method: str,
        context: grpc.aio.ServicerContext[Any, Any],
        request_id: str,
        ended: Callable[[grpc.StatusCode, str], None] | None = None,
    ) -> AsyncIterator[Call]:
        """Run the body as one call of `method`; a call that is not admitted never reaches it.

        ended: told the code and the reason of the end, whichever it is; the reason is empty when the code is OK.
        """
        started = time.perf_counter()
        call = Call(request_id)
        trace = self._tracer.start(method, context.invocation_metadata() or ())
        self._rpc_observer.rpc_started(method)
        code, failure = grpc.StatusCode.OK, None
        try:
            self._admit(context)
            yield call
        except (Exception, asyncio.CancelledError) as error:
            if caller_left(error):
                code, call.reason = end_by_caller(context)
                raise
            code, failure, call.reason = code_of(error), status_of(error, request_id), reason_of(error)
        finally:
            seconds = time.perf_counter() - started
            self._rpc_observer.rpc_handled(method, code.name, seconds)
            self._call_log.ended(method, code.name, seconds, call.facts)
            self._tracer.end(trace, code.name, call.facts)
            if ended is not None:
                ended(code, call.reason)
        if failure is not None:
            await context.abort_with_status(rpc_status.to_status(failure))

    def _admit(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            self._admission.enter()
        except NotReady:
            self._observer.rejected("not_ready")
            raise
        # Not at the end of the body: a call is inside until its response is sent, or draining could cut it off.
        context.add_done_callback(lambda _: self._admission.leave())  # type: ignore[arg-type]
