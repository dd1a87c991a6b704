"""How a process of the service ends: told to before it serves, as one that did not crash; and at once, once it may."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger(__name__)


class _Told(BaseException):
    """Passes through whatever the process is busy with; its text is the signal's name."""


@contextmanager
def ends_when_told() -> Iterator[None]:
    """While it lasts, SIGTERM and SIGINT end the process: exit code 0, one line in the log. In the main thread only.

    Whoever listens to signals inside of it takes them over for as long as it listens.
    """

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise _Told(signal.Signals(number).name)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    except _Told as told:
        logger.info("told to end by %s before serving", told)
        raise SystemExit(0) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_now() -> NoReturn:
    """End the process with exit code 0; for one that has closed whatever it had open.

    The interpreter would look through every object for garbage once more, 0.7 s of a processor with torch loaded, which
    nobody who sent a second signal should wait for. And a thread that is stuck in a step would be ended inside of it.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
