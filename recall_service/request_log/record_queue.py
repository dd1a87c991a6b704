"""Serialised records on their way from the event loop to the writer: bounded, and nobody ever waits."""

from collections import deque


class RecordQueue:
    """First in, first out, for one thread that puts and one that takes; neither locks.

    Takes nothing more in once it holds `max_bytes`: a disk that hangs must not fill the memory.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[bytes] = deque()
        # Two sums that only grow, each changed by one thread alone, in place of one that both would change.
        self._bytes_put = 0
        self._bytes_taken = 0
        self._is_closed = False

    def put(self, record: bytes) -> bool:
        """Take `record` in; False when there is no room, or nobody takes any more."""
        if self._is_closed or self._bytes_put - self._bytes_taken >= self._max_bytes:
            return False
        self._bytes_put += len(record)
        self._waiting.append(record)
        return True

    def take(self, max_bytes: int) -> list[bytes]:
        """The oldest records, until they have `max_bytes` or there are no more."""
        taken, num_bytes = [], 0
        while self._waiting and num_bytes < max_bytes:
            taken.append(self._waiting.popleft())
            num_bytes += len(taken[-1])
        self._bytes_taken += num_bytes
        return taken

    def close(self) -> int:
        """Take nothing in from now on; how many are left, never to be taken."""
        self._is_closed = True
        num_left = len(self._waiting)
        self._waiting.clear()
        return num_left
