"""Who runs next, as far as rows, beam slots and context pages reach.

The order is that of `waiting`: by priority, having waited counting as such. Nobody overtakes the head of it, however
narrow, so that a wide request is let in as soon as enough has ended. A request reserves its whole beam width, the slots
of its longest paths and its whole prompt when it is admitted, so nothing that runs can ever find the pools empty: what
does not fit now waits, and what could never fit is refused when it is submitted. How many may wait is for whoever
submits to say.
"""

from dataclasses import dataclass

from recall_service.engine.kv_cache import ContextPages
from recall_service.engine.prefix_cache import PrefixCache
from recall_service.engine.request import BeamRequest, Priority
from recall_service.engine.waiting import Waiting, WaitingQueue
from recall_service.errors import Violation


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """How much runs at once, and how much may wait for that.

    max_rows: beams of all running requests together, so also the widest beam.
    max_steps: longest path: the most levels of any catalogue, or max_new_tokens of a free search.
    max_slots: beam slots of all running requests together; None is enough for max_rows paths of max_steps. Give fewer
        where long paths are allowed but few rows take them.
    max_queue_rows, max_queue_tokens: beams and prompt tokens of the requests that wait. Whoever hands requests to the
        engine keeps to them; the engine itself takes what it is given.
    priority_ageing_seconds: having waited so much longer counts as one priority more.
    context_pages, page_len: room for prompts, in pages of page_len tokens.
    prefix_cache: keep the pages of earlier prompts, as far as room reaches, for prompts that begin as they do.
    prefix_cache_bytes: room for that beyond context_pages, in whole pages.
    """

    max_rows: int = 2048
    max_steps: int = 8
    max_slots: int | None = None
    max_queue_rows: int = 8192
    max_queue_tokens: int = 65_536
    priority_ageing_seconds: float = 1.0
    context_pages: int = 512
    page_len: int = 32
    prefix_cache: bool = True
    prefix_cache_bytes: int = 0
    max_prompt_tokens: int = 2048

    @property
    def num_slots(self) -> int:
        """Beam slots in the pool; the last token of a path needs none."""
        return self.max_rows * (self.max_steps - 1) if self.max_slots is None else self.max_slots


class Scheduler:
    """The queue, and what running requests have reserved: rows, beam slots, prompt tokens, and work by priority."""

    def __init__(self, limits: EngineLimits) -> None:
        self._limits = limits
        self._queue = WaitingQueue(limits.priority_ageing_seconds)
        self.reserved_rows = 0
        self.reserved_slots = 0
        self.reserved_tokens = 0
        self.reserved_work = [0] * len(Priority)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    def age_seconds(self, now: float) -> float:
        """How long the one that has waited longest has waited at `now`, seconds of `time.monotonic()`; 0 if nobody."""
        return self._queue.age_seconds(now)

    def enqueue(self, waiting: Waiting) -> None:
        """Let a request wait for its turn."""
        self._queue.append(waiting)

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
        head = self._queue.head
        if head is None:
            return None
        request = head.request
        if self.reserved_rows + request.beam_width > self._limits.max_rows:
            return None
        if self.reserved_slots + request.slots_needed > self._limits.num_slots:
            return None
        if not prefixes.fits(request.prompt):
            return None
        self._reserve(request, 1)
        return self._queue.remove(head.request_id)

    def release(self, request: BeamRequest) -> None:
        """Give back what a request had reserved that no longer runs."""
        self._reserve(request, -1)

    def remove(self, request_id: int) -> bool:
        """Take a request out of the queue; False when it is not there."""
        return self._queue.remove(request_id) is not None

    def remove_all(self) -> list[Waiting]:
        """Take out every waiting request."""
        return self._queue.remove_all()

    def remove_expired(self, now: float) -> list[Waiting]:
        """Take out every waiting request whose deadline has passed."""
        return self._queue.remove_expired(now)

    def _reserve(self, request: BeamRequest, times: int) -> None:
        self.reserved_rows += times * request.beam_width
        self.reserved_slots += times * request.slots_needed
        self.reserved_tokens += times * len(request.prompt)
        self.reserved_work[request.priority] += times * request.demand.work
