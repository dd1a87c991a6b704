"""Why a call got no answer: what the server says in `google.rpc.Status`, as attributes."""

from contextlib import suppress
from typing import Self

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from recall_service.errors import Violation


class RecallClientError(Exception):
    """A call that got no answer.

    code: the gRPC status. reason: the server's stable name for what went wrong; empty when no server spoke.
    violations: every field that was wrong. retry_after_seconds: when the server asks to come back, if it does.
    limit: what was full on the server, if that was it: queue_full, deadline, client_limit, scene_limit or memory.
    request_id: what to quote to the operators of the service; may be empty.
    """

    def __init__(self, code: grpc.StatusCode, details: str, status: Status | None = None) -> None:
        self.code = code
        self.reason = self.limit = self.request_id = ""
        self.violations: tuple[Violation, ...] = ()
        self.retry_after_seconds: float | None = None
        super().__init__(f"{code.name}: {details}")
        for detail in status.details if status is not None else ():
            with suppress(DecodeError):  # who knows who made it: the code is heard all the same
                self._read(detail)

    @classmethod
    def of_call(cls, error: grpc.RpcError) -> Self:
        """What gRPC raised, with all that the server said."""
        try:
            status = rpc_status.from_call(error)
        except (ValueError, DecodeError):  # something between us and the server rewrote the status
            status = None
        return cls(error.code(), error.details() or "", status)

    def _read(self, detail: AnyMessage) -> None:
        info, bad_request, retry = ErrorInfo(), BadRequest(), RetryInfo()
        if detail.Unpack(info):
            self.reason = info.reason
            self.limit, self.request_id = info.metadata.get("limit", ""), info.metadata.get("request_id", "")
        elif detail.Unpack(bad_request):
            self.violations = tuple(Violation(v.field, v.description) for v in bad_request.field_violations)
        elif detail.Unpack(retry):
            self.retry_after_seconds = seconds_of(retry.retry_delay)


def seconds_of(duration: Duration) -> float:
    """Not by ToTimedelta, which raises for what no Duration may hold."""
    return duration.seconds + duration.nanos * 1e-9
