"""An event loop that wakes when it was told to, to a tenth of a millisecond, as a replay must."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def precise_runner() -> asyncio.Runner:
    """A runner whose timers do not wait for the next whole millisecond, as those over epoll do."""
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))


def run_on_time(main: Coroutine[Any, Any, _Result]) -> _Result:
    """`asyncio.run` in such a runner."""
    with precise_runner() as runner:
        return runner.run(main)
