"""The one table from errors to gRPC status, and the `google.rpc.Status` that carries the facts to the caller.

An error of ours says on the wire what it says to people. A fault of the server says nothing there but the request id;
what happened goes to the log.
"""

import logging
import math
from functools import cache

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from recall_service.errors import (
    ChangeRefused,
    DeadlineExpired,
    HistoryEmpty,
    InvalidRequest,
    NotReady,
    Overloaded,
    PermissionDenied,
    RecallError,
    RequestCancelled,
    Unauthenticated,
    UnknownVersion,
    Violation,
)
from recall_service.stubs.recall.v1.recall_pb2 import RecallFailure

DOMAIN = "recall-service"

STATUS_CODES: dict[type[RecallError], grpc.StatusCode] = {
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    HistoryEmpty: grpc.StatusCode.FAILED_PRECONDITION,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DeadlineExpired: grpc.StatusCode.DEADLINE_EXCEEDED,
    RequestCancelled: grpc.StatusCode.CANCELLED,
    NotReady: grpc.StatusCode.UNAVAILABLE,
    UnknownVersion: grpc.StatusCode.NOT_FOUND,
    ChangeRefused: grpc.StatusCode.FAILED_PRECONDITION,
    RecallError: grpc.StatusCode.INTERNAL,  # every other branch of the tree: the engine's failures, a bad setup
}

# A status travels in the trailers, of which clients accept 8 KiB by default: beyond that the caller would see a
# protocol error in place of ours. Base64 and percent-encoding are paid for in these bounds.
_MAX_MESSAGE_BYTES = 512
_MAX_VIOLATION_BYTES = 2_048

# Where gRPC's clients look for the `google.rpc.Status`: https://grpc.io/docs/guides/error/
DETAILS_KEY = "grpc-status-details-bin"

# gRPC's own clients wait so long before they try again, where their retry policy lets them.
PUSHBACK_KEY = "grpc-retry-pushback-ms"

_log = logging.getLogger(__name__)


def code_of(error: BaseException) -> grpc.StatusCode:
    """Look the error's class, or the nearest of its bases, up in the table; INTERNAL for what is not ours."""
    return _code_of_class(type(error))  # type: ignore[arg-type]  # mypy asks for the __hash__ of instances


@cache
def _code_of_class(of: type[BaseException]) -> grpc.StatusCode:
    return next((STATUS_CODES[kind] for kind in of.__mro__ if kind in STATUS_CODES), grpc.StatusCode.INTERNAL)


def reason_of(error: BaseException) -> str:
    """The stable, machine-readable name of what went wrong; INTERNAL for what is not ours."""
    return error.reason if isinstance(error, RecallError) else RecallError.reason


def failure_of(error: BaseException, request_id: str) -> RecallFailure:
    """What the caller of a batch is told about `error` in one of its entries: `status_of`, less the violations."""
    status = status_of(error, request_id)
    failure = RecallFailure(code=status.code, message=status.message, reason=reason_of(error), request_id=request_id)
    if isinstance(error, Overloaded):
        failure.limit = error.limit
        failure.retry_after.CopyFrom(_duration(error.retry_after_seconds))
    return failure


def status_of(error: BaseException, request_id: str) -> Status:
    """What the caller is told about `error`. Faults of the server are logged here, with their traceback.

    Details: always ErrorInfo (reason, domain, metadata with the request id), BadRequest for InvalidRequest, RetryInfo
    for Overloaded. Bounded in size; `num_violations` in the metadata tells how many there were in all.
    """
    code = code_of(error)
    metadata = {"request_id": request_id}
    if code is grpc.StatusCode.INTERNAL:
        _log.error("request %s failed: %s", request_id, type(error).__name__, exc_info=error)
        message = f"internal error; give request id {request_id} to the operators of this service"
    else:
        message = _shortened(str(error))
    if isinstance(error, RecallError):
        metadata |= error.metadata
    details = []
    if isinstance(error, InvalidRequest):
        metadata["num_violations"] = str(len(error.violations))
        details.append(_packed(_bad_request(error.violations)))
    if isinstance(error, Overloaded):
        details.append(_packed(RetryInfo(retry_delay=_duration(error.retry_after_seconds))))
    details.append(_packed(ErrorInfo(reason=reason_of(error), domain=DOMAIN, metadata=metadata)))
    return Status(code=code.value[0], message=message, details=details)


def trailers_of(
    error: BaseException, status: Status, time_remaining: float | None
) -> tuple[tuple[str, str | bytes], ...]:
    """What travels behind a failed call: `status` whole, and for Overloaded when gRPC itself may try again.

    time_remaining: seconds to the deadline of the call; None when it has none.
    """
    trailers: tuple[tuple[str, str | bytes], ...] = ((DETAILS_KEY, status.SerializeToString()),)
    if isinstance(error, Overloaded):
        trailers += ((PUSHBACK_KEY, str(_pushback_milliseconds(error.retry_after_seconds, time_remaining))),)
    return trailers


def _pushback_milliseconds(seconds: float, time_remaining: float | None) -> int:
    """Clients do not compare it with their deadline, and would wait for that in vain: -1 ends their call now.

    Never 0, which leaves clients built on gRPC's C core waiting for a try that does not come.
    """
    if time_remaining is not None and seconds >= time_remaining:
        return -1
    return max(1, math.ceil(seconds * 1e3))


def _packed(message: Message) -> Any:
    """What `Any.Pack` makes, for less: under overload most calls end in a status."""
    return Any(type_url=f"type.googleapis.com/{message.DESCRIPTOR.full_name}", value=message.SerializeToString())


def _duration(seconds: float) -> Duration:
    whole_seconds, microseconds = divmod(round(seconds * 1e6), 1_000_000)
    return Duration(seconds=whole_seconds, nanos=microseconds * 1_000)


def _bad_request(violations: list[Violation]) -> BadRequest:
    """List the first violation, and the next ones while they fit."""
    listed = BadRequest()
    for field, description in violations:
        listed.field_violations.add(field=field, description=_shortened(description))
        if listed.ByteSize() > _MAX_VIOLATION_BYTES:
            break
    return listed


def _shortened(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return text
    return encoded[:_MAX_MESSAGE_BYTES].decode(errors="ignore") + " ..."
