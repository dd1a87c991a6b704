"""One line for each call that is written about: a sample of those that went well, and those that failed.

A line names no user, no history and no item. Knows nothing of calls but what it is told at their end.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import structlog

from recall_service.observability.labels import fold

MAX_FAILURES_PER_SECOND = 10  # of each code; what clients do wrong must not hide what goes wrong here

# A ranker that asks two replicas and takes the faster answer cancels the other call: no failure.
_NO_FAILURES = frozenset({"OK", "CANCELLED"})


class CallLog:
    """Writes to structlog; for use by one event loop.

    sample: share of the calls without a failure that are written, 0 to 1; failures are written whatever it is, up to
        MAX_FAILURES_PER_SECOND of each code. The next line of that code says how many were left out (`suppressed`).
    scenes: the scenes told apart; any other is written as "other".
    trace_id: says which trace is being recorded of the current call, if any.
    clock: seconds; chance: draws from [0, 1).
    """

    def __init__(
        self,
        sample: float,
        scenes: Iterable[str],
        trace_id: Callable[[], str | None] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._sample = sample
        self._scenes = frozenset(scenes)
        self._trace_id = trace_id
        self._clock, self._chance = clock, chance
        self._logger = structlog.stdlib.get_logger("recall_service.calls")
        self._second = 0
        self._written: Counter[str] = Counter()  # failures of the current second, by code
        self._suppressed: Counter[str] = Counter()  # since the last line, by code

    def ended(self, method: str, code_name: str, seconds: float, facts: Callable[[], Mapping[str, str | int]]) -> None:
        """A call ended; `facts` is asked only when a line is written."""
        if code_name in _NO_FAILURES:
            if self._chance() < self._sample:
                self._logger.info("call", **self._line(method, code_name, seconds, facts()))
        elif self._may_write(code_name):
            suppressed = self._suppressed.pop(code_name, 0)
            line = self._line(method, code_name, seconds, facts())
            self._logger.warning("call", **line, **({"suppressed": suppressed} if suppressed else {}))

    def _may_write(self, code_name: str) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self._written.clear()
        if self._written[code_name] == MAX_FAILURES_PER_SECOND:
            self._suppressed[code_name] += 1
            return False
        self._written[code_name] += 1
        return True

    def _line(
        self, method: str, code_name: str, seconds: float, facts: Mapping[str, str | int]
    ) -> dict[str, str | int | float]:
        line: dict[str, str | int | float] = {"method": method, "code": code_name, **facts}
        if "scene" in facts:
            line["scene"] = fold(str(facts["scene"]), self._scenes)
        line["ms"] = round(seconds * 1e3, 3)
        if self._trace_id and (trace_id := self._trace_id()):
            line["trace_id"] = trace_id
        return line
