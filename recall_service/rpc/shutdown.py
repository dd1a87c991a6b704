"""How a process is told to end: SIGTERM, SIGINT, or an operator's Drain. Knows nothing of what ends, nor how."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Shutdown:
    """The first word asks for an end in order (`requested`), the second signal for one at once (`hurried`).

    A Drain is no signal: one that follows it is what every orchestrator sends, and cuts nothing short.
    Make it inside a running event loop.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()
        self._was_signalled = False

    def request(self) -> None:
        """Ask for an end in order; asking again changes nothing."""
        self.requested.set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While it lasts, SIGTERM and SIGINT are heard here, and by nobody else. In the main thread only."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _signalled(self) -> None:
        self.requested.set()
        if self._was_signalled:
            self.hurried.set()
        self._was_signalled = True


async def done_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether `work` was done before `event` was set; if not, it is cancelled. Raises what it raises."""
    doing, waiting = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({doing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return doing.done()
    finally:
        doing.cancel()
        waiting.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)
