"""What bounds a call, and what it carries: the same for threads and for asyncio."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from recall_service.client.channel import Access
from recall_service.client.errors import RecallClientError
from recall_service.client.policy import MAX_REQUEST_BYTES

DEFAULT_TIMEOUT_SECONDS = 5.0
RESERVE_SECONDS = 0.01  # of the time that a caller's caller gives, for the caller to make something of the answer


class HasDeadline(Protocol):
    """The context of a gRPC call that the caller itself is to answer, of either kind of server."""

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None when it has none."""


@dataclass(frozen=True, slots=True)
class CallTerms:
    """The terms of all calls of one client. timeout: seconds, unless a call brings its own."""

    access: Access
    timeout: float = DEFAULT_TIMEOUT_SECONDS
    max_request_bytes: int = MAX_REQUEST_BYTES

    def of_call(self, request: Message, timeout: float | None, within: HasDeadline | None) -> dict[str, Any]:
        """Keyword arguments for a method of a stub.

        Raises ValueError for a request that the server would not take, and RecallClientError, without a call, when no
        time is left for one.
        """
        if (num_bytes := request.ByteSize()) > self.max_request_bytes:
            # The server would refuse it too, with a code that is otherwise worth another try.
            raise ValueError(
                f"the request is {num_bytes:,} bytes, and may be {self.max_request_bytes:,}; shorten its history, "
                "split the batch, or raise max_request_bytes here and on the server"
            )
        return {"timeout": self._seconds(timeout, within), "metadata": self.access.metadata()}

    def _seconds(self, timeout: float | None, within: HasDeadline | None) -> float:
        seconds = self.timeout if timeout is None else timeout
        remaining = math.inf if within is None or (left := within.time_remaining()) is None else left
        seconds = min(seconds, remaining - RESERVE_SECONDS)
        if not seconds > 0:
            details = "no time is left to ask in; nothing was sent"
            raise RecallClientError(grpc.StatusCode.DEADLINE_EXCEEDED, details)
        return seconds
