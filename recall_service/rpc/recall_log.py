"""Where the server reports every recall that ended, with what was asked and answered: what a request log needs."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import grpc

from recall_service import __version__
from recall_service.rpc.convert import fill_logged_answer
from recall_service.serving.query import RecallAnswer
from recall_service.stubs.recall.v1.recall_pb2 import RecallRequest
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall


class RecallLog(Protocol):
    """Told of every Recall and every entry of a BatchRecall that was let in and could be read, however it ended."""

    def recall_ended(self, request_id: str, fill: Callable[[LoggedRecall], None]) -> None:
        """A recall of this id has ended; `fill` puts all of it into an empty message, there and then.

        Called on the event loop: is cheap, never waits and never raises.
        """


class NullRecallLog:
    """Takes no note; the default."""

    def recall_ended(self, request_id: str, fill: Callable[[LoggedRecall], None]) -> None:
        """Do nothing."""


@dataclass(slots=True, eq=False)
class RecallUnderWay:
    """One recall from its arrival to its end.

    client: who asks, as authentication knows it. deadline, arrived: in seconds of `time.monotonic()`.
    answer, total_seconds: once it is answered, and how long after its arrival that was.
    """

    request: RecallRequest
    request_id: str
    client: str
    deadline: float | None
    in_batch: bool = False
    answer: RecallAnswer | None = None
    total_seconds: float = 0.0
    arrived: float = field(default_factory=time.monotonic)
    arrival_unix_ns: int = field(default_factory=time.time_ns)

    def answered(self, answer: RecallAnswer) -> None:
        """Take note of the answer, now."""
        self.answer, self.total_seconds = answer, time.monotonic() - self.arrived

    def report(self, log: RecallLog, code: grpc.StatusCode, reason: str) -> None:
        """Tell `log` that it has ended now. reason: as in ErrorInfo, empty when the code is OK."""
        log.recall_ended(self.request_id, partial(self._fill, code, reason))

    def _fill(self, code: grpc.StatusCode, reason: str, record: LoggedRecall) -> None:
        record.arrival_time.FromNanoseconds(self.arrival_unix_ns)
        record.request.CopyFrom(self.request)
        record.request.request_id = self.request_id
        if self.deadline is not None:
            record.deadline_seconds = max(0.0, self.deadline - self.arrived)
        record.status_code = code.value[0]
        record.error_reason = reason
        if code is grpc.StatusCode.OK and self.answer is not None:
            fill_logged_answer(self.answer, self.total_seconds, record.answer)
        record.total_seconds = time.monotonic() - self.arrived
        record.server_version = __version__
        record.in_batch = self.in_batch
