"""A clock for bounds on delays: it stands still while this process gets no time at all."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

_TICK_SECONDS = 0.002
_PAUSE_SECONDS = 0.01  # what is shorter is no pause: threads wait so long for their turn


class _Pauses:
    """A thread that ticks, and by how much its ticks were late while no thread of the process was at work."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ended = Event()
        self._last_tick, self._last_work = time.perf_counter(), time.process_time()
        self._lost_seconds = 0.0
        self._thread = Thread(target=self._tick, name="pauses")
        self._thread.start()

    def now(self) -> float:
        with self._lock:
            now = time.perf_counter()
            return now - self._lost_seconds - self._late_by(now)  # after a pause this thread may be the first to run

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _late_by(self, now: float) -> float:
        worked = time.process_time() - self._last_work  # whoever holds the interpreter's lock is no pause
        seconds = now - self._last_tick - _TICK_SECONDS - worked
        return seconds if seconds > _PAUSE_SECONDS else 0.0

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            with self._lock:
                now = time.perf_counter()
                self._lost_seconds += self._late_by(now)
                self._last_tick, self._last_work = now, time.process_time()


@contextmanager
def unpaused_clock() -> Iterator[Callable[[], float]]:
    """Seconds as of `time.perf_counter`, less the pauses of the machine since this began.

    They are seen by a thread, not by the event loop, and only where the process used no processor: what blocks the
    loop, be it a socket, a sleep or work, is a delay like any other.
    """
    pauses = _Pauses()
    try:
        yield pauses.now
    finally:
        pauses.stop()
