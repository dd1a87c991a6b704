"""One input, checked within limits: what came out, how long it took, how much memory it wanted."""

import ctypes
import resource
import time
import traceback
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from tests.fuzz.forbidden import Watch
from tests.fuzz.hostile import Broken, Hostile, Target

MAX_SECONDS = 2.0  # of processor time: the machine may be busy with other things
MAX_GROWN_BYTES = 200 * 1024**2


class Examiner:
    """Checks inputs of one target in this process; `watch` may be shared."""

    def __init__(self, target: Target, watch: Watch) -> None:
        self._target, self._watch = target, watch

    def problem(self, hostile: Hostile) -> str:
        """What is wrong with how `hostile` was read; empty when nothing is. The first line says it, the rest is where.

        Memory is seen where it is more than this process ever had.
        """
        peak, started = peak_bytes(), time.process_time()
        self._watch.active = True
        try:
            self._target.check(hostile)
        except KeyboardInterrupt:
            raise
        except Broken as broken:
            return f"{broken}\n{traceback.format_exc()}"
        except BaseException as error:  # noqa: BLE001  a panic of Rust is no Exception
            return f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        finally:
            self._watch.active = False
            seen, self._watch.seen = self._watch.seen, []
        if seen:
            return f"forbidden, and the error swallowed: {seen[0]}"
        if (seconds := time.process_time() - started) > MAX_SECONDS:
            return f"took {seconds:.1f} s of processor time"
        if (grown := peak_bytes() - peak) > MAX_GROWN_BYTES:
            return f"memory grew by {grown / 1024**2:,.0f} MiB"
        return ""


def resident_bytes() -> int:
    """What this process has in memory now, without what its allocators only keep for later.

    They give it back whenever they like, amid another target's inputs, say, and it would count for that one.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # glibc's alone has it
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def peak_bytes() -> int:
    """The most this process ever had in memory. Not getrusage: that begins with what the parent process had."""
    status = Path("/proc/self/status").read_bytes()
    start = status.index(b"VmHWM:") + len(b"VmHWM:")
    return int(status[start : status.index(b"kB", start)]) * 1024
