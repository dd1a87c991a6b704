"""The thread that makes frames of records, and appends them to files. What goes wrong there stays there."""

import logging
import math
import time
from collections.abc import Callable
from threading import Event, Thread

from recall_service.request_log.files import RotatingFiles
from recall_service.request_log.frames import encode_frame
from recall_service.request_log.record_queue import RecordQueue

logger = logging.getLogger(__name__)

BLOCK_BYTES = 256 * 1024  # of records in one frame, before compression; the last record may go beyond
WRITE_SECONDS = 0.25  # between two looks at the queue: how old a record is, at most, when it is written

_COMPLAINT_SECONDS = 60.0


class LogWriter:
    """Takes from `queue` and appends to `files` until closed, in a thread of its own.

    The thread wakes up a few times a second however many records there are, and what it then does leaves the
    interpreter to others: it joins, compresses and writes bytes. count: told "written" or "dropped", and how many.
    """

    def __init__(self, queue: RecordQueue, files: RotatingFiles, count: Callable[[str, int], None]) -> None:
        self._queue, self._files, self._count = queue, files, count
        self._complained = -math.inf
        self._closing = Event()
        self._thread = Thread(target=self._run, name="request-log", daemon=True)  # a disk that hangs holds up no exit
        self._thread.start()

    def close(self, timeout_seconds: float) -> None:
        """Write what is queued, and end the thread; a disk that hangs is given up after the timeout."""
        self._closing.set()
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            logger.warning("the request log did not end within %g s; its last records are lost", timeout_seconds)

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = self._closing.wait(WRITE_SECONDS)  # then whatever was put before closing is taken below
                while records := self._queue.take(BLOCK_BYTES):
                    self._write(records)
        except Exception:
            logger.exception("the request log has stopped; calls are served on, and no longer logged")
        finally:
            self._count("dropped", self._queue.close())
            self._files.close()

    def _write(self, records: list[bytes]) -> None:
        result = "dropped"
        try:
            self._files.append(encode_frame(b"".join(records), len(records)))
            result = "written"
        except OSError as error:
            self._complain(error)
        finally:
            self._count(result, len(records))

    def _complain(self, error: OSError) -> None:
        """A disk that is full stays so for a while: one line a minute."""
        if time.monotonic() - self._complained >= _COMPLAINT_SECONDS:
            self._complained = time.monotonic()
            logger.warning("the request log drops records, and goes on trying: %s", error)
