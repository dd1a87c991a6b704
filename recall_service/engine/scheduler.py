"""Who runs next: first come, first served, as far as rows, beam slots and context pages reach.

A request reserves its whole beam width, the slots of its longest paths and its whole prompt when it is admitted, so
nothing that runs can ever find the pools empty: what does not fit now waits, and what could never fit is refused when
it is submitted.
"""

from collections import deque
from dataclasses import dataclass

from recall_service.engine.kv_cache import ContextPages
from recall_service.engine.prefix_cache import PrefixCache
from recall_service.engine.request import BeamRequest
from recall_service.errors import Overloaded, Violation


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much runs at once.

    max_rows: beams of all running requests together, so also the widest beam.
    max_steps: longest path: the most levels of any catalogue, or max_new_tokens of a free search.
    max_slots: beam slots of all running requests together; None is enough for max_rows paths of max_steps. Give fewer
        where long paths are allowed but few rows take them.
    max_waiting: requests in the queue.
    context_pages, page_len: room for prompts, in pages of page_len tokens.
    prefix_cache: keep the pages of earlier prompts, as far as room reaches, for prompts that begin as they do.
    prefix_cache_bytes: room for that beyond context_pages, in whole pages.
    """

    max_rows: int = 2048
    max_steps: int = 8
    max_slots: int | None = None
    max_waiting: int = 1024
    context_pages: int = 512
    page_len: int = 32
    prefix_cache: bool = True
    prefix_cache_bytes: int = 0
    max_prompt_tokens: int = 2048

    @property
    def num_slots(self) -> int:
        """Beam slots in the pool; the last token of a path needs none."""
        return self.max_rows * (self.max_steps - 1) if self.max_slots is None else self.max_slots


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A request in the queue, and when it came (seconds of time.monotonic())."""

    request_id: int
    request: BeamRequest
    submitted: float


class Scheduler:
    """The queue, and the rows and beam slots that running requests have reserved."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._waiting: deque[Waiting] = deque()
        self.reserved_rows = 0
        self.reserved_slots = 0

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def age_seconds(self, now: float) -> float:
        """How long the head of the queue has waited at `now`, seconds of `time.monotonic()`; 0 when it is empty."""
        try:
            return now - self._waiting[0].submitted
        except IndexError:  # not asked beforehand whether it is empty: another thread may empty it meanwhile
            return 0.0

    def enqueue(self, waiting: Waiting) -> None:
        """Put a request at the end of the queue. Raises Overloaded when it is full."""
        if len(self._waiting) >= self._limits.max_waiting:
            raise Overloaded(f"{len(self._waiting)} requests are waiting already", retry_after_seconds=1.0)
        self._waiting.append(waiting)

    def violations(self, request: BeamRequest, pages: ContextPages) -> list[Violation]:
        """Every limit that keeps even an empty engine from running a request."""
        limits, violations = self._limits, []
        most_tokens = min(limits.max_prompt_tokens, pages.num_pages * pages.page_len)
        if not 1 <= len(request.prompt) <= most_tokens:
            violations.append(Violation("prompt", f"{len(request.prompt)} tokens; give 1 to {most_tokens}"))
        fits_rows = 1 <= request.beam_width <= limits.max_rows
        fits_steps = 1 <= request.path_len <= limits.max_steps
        if not fits_rows:
            violations.append(Violation("beam_width", f"{request.beam_width}; give 1 to {limits.max_rows}"))
        if (request.constraint is None) == (request.generation is None):
            given = "both" if request.constraint is not None else "neither"
            violations.append(Violation("generation", f"{given} of it and constraint given; give one"))
        elif not fits_steps:
            asked = "generation.max_new_tokens" if request.constraint is None else "constraint"
            violations.append(Violation(asked, f"paths of {request.path_len} tokens; give 1 to {limits.max_steps}"))
        if request.num_results < 0:
            violations.append(Violation("num_results", f"{request.num_results}; give 0 for the beam width, or more"))
        if not 0 <= request.row_budget <= limits.num_slots + 1:
            violations.append(Violation("row_budget", f"{request.row_budget}; give 0 to {limits.num_slots + 1}"))
        elif fits_rows and fits_steps and request.slots_needed > limits.num_slots:
            needed = f"{request.beam_width} beams of {request.path_len} tokens take {request.slots_needed} slots"
            violations.append(Violation("beam_width", f"{needed}; the engine has {limits.num_slots}: ask for less"))
        return violations

    def admit(self, prefixes: PrefixCache) -> Waiting | None:
        """Take the head of the queue and reserve what it needs, if that much is free. Nobody overtakes it."""
        if not self._waiting:
            return None
        request = self._waiting[0].request
        if self.reserved_rows + request.beam_width > self._limits.max_rows:
            return None
        if self.reserved_slots + request.slots_needed > self._limits.num_slots:
            return None
        if not prefixes.fits(request.prompt):
            return None
        self.reserved_rows += request.beam_width
        self.reserved_slots += request.slots_needed
        return self._waiting.popleft()

    def release(self, request: BeamRequest) -> None:
        """Give back the rows and slots of a request that no longer runs."""
        self.reserved_rows -= request.beam_width
        self.reserved_slots -= request.slots_needed

    def remove(self, request_id: int) -> bool:
        """Take a request out of the queue; False when it is not there."""
        kept = [waiting for waiting in self._waiting if waiting.request_id != request_id]
        found = len(kept) < len(self._waiting)
        self._waiting = deque(kept)
        return found

    def remove_all(self) -> list[Waiting]:
        """Take out every waiting request."""
        removed, self._waiting = list(self._waiting), deque()
        return removed

    def remove_expired(self, now: float) -> list[Waiting]:
        """Take out every waiting request whose deadline has passed."""
        expired = [w for w in self._waiting if w.request.deadline is not None and w.request.deadline <= now]
        if expired:
            gone = {waiting.request_id for waiting in expired}
            self._waiting = deque(waiting for waiting in self._waiting if waiting.request_id not in gone)
        return expired
