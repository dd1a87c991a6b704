"""The request log as the service sees it: told of every recall that ended, it never waits and never raises."""

from collections.abc import Callable

from recall_service.request_log.files import RotatingFiles
from recall_service.request_log.frames import MAX_RECORD_BYTES
from recall_service.request_log.record_queue import RecordQueue
from recall_service.request_log.sampling import is_sampled
from recall_service.request_log.writer import LogWriter
from recall_service.stubs.recall.v1.request_log_pb2 import LoggedRecall, LoggedRecalls

# A disk that is slow for seconds loses nothing; one that hangs costs no more than this.
MAX_QUEUED_BYTES = 64 * 1024**2

CLOSE_SECONDS = 5.0


class RequestLog:
    """Logs a share of the recalls that it is told of. By its shape it is a `rpc.recall_log.RecallLog`.

    share: 0 to 1. rule: what becomes of a user id. count: told how many records were written, sampled_out or dropped;
    cheap, never raises, called from any thread.
    """

    def __init__(
        self,
        files: RotatingFiles,
        *,
        share: float,
        rule: Callable[[str], str],
        count: Callable[[str, int], None],
        max_queued_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self._share, self._rule, self._count = share, rule, count
        self._queue = RecordQueue(max_queued_bytes)
        self._writer = LogWriter(self._queue, files, count)

    def recall_ended(self, request_id: str, fill: Callable[[LoggedRecall], None]) -> None:
        """Queue a recall, if it is among the sampled, there is room, and readers would take it. From one thread only.

        It is serialised here and now: that costs a few microseconds, and more would be lost by keeping its objects
        alive for another thread, which would take the interpreter from the calls meanwhile.
        """
        if not is_sampled(request_id, self._share):
            self._count("sampled_out", 1)
            return
        alone = LoggedRecalls()  # serialised, messages of one record each make one of many when they are joined
        record = alone.records.add()
        fill(record)
        record.request.user_id = self._rule(record.request.user_id)
        serialised = alone.SerializeToString()
        if len(serialised) > MAX_RECORD_BYTES or not self._queue.put(serialised):
            self._count("dropped", 1)

    def close(self) -> None:
        """Write what is queued; waits for it, but not for ever. What ends later is dropped."""
        self._writer.close(CLOSE_SECONDS)
