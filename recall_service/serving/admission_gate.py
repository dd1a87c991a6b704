"""Who is let in to an engine: as much as it can run and a bounded queue, and nobody whose deadline it cannot meet.

It counts rows and prompt tokens, not calls, and everything that the engine holds: what a caller gives up stays counted
until the engine has let go of it, so that callers who come and go cannot pile up work behind a long step. It answers
at once, whatever the engine is doing. A request that finds the engine empty is always let in, and how fast the queue
moves is forgotten while nobody waits in it: no estimate, however wrong, can then shut the gate for good.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from recall_service.engine.request import BeamResult, Demand, Priority
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import DeadlineExpired, NotReady, Overloaded, RecallError
from recall_service.serving.work_estimate import WorkEstimate

QUEUE_SHARES = {Priority.HIGH: 1.0, Priority.NORMAL: 0.9, Priority.LOW: 0.5}  # of the queue, that each may fill

_RETRY_SECONDS = (0.05, 5.0)  # the least and the most that is advised
_RETRY_JITTER = 0.2  # lest all that were refused together come back together
_RETRY_UNMEASURED_SECONDS = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """What one request takes up of an engine from `entered`, in seconds of `time.monotonic()`, until it leaves.

    tokens: its prompt, in whole pages. foreseen_wait: seconds until it would run; None when there was room at once.
    """

    rows: int
    tokens: int
    work: int
    priority: Priority
    entered: float
    foreseen_wait: float | None


class AdmissionGate:
    """The gate of one engine; for use by any thread, none of which ever waits long.

    running_work: what the engine is working on, by priority; all else that is inside waits.
    chance: draws from [0, 1).
    refusal: why nobody is let in at all; None lets in.
    """

    def __init__(
        self,
        limits: EngineLimits,
        running_work: Callable[[], Sequence[int]],
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits
        self._running_work = running_work
        self._clock = clock
        self._chance = chance
        self._lock = Lock()
        self._estimate = WorkEstimate()
        self._work = [0] * len(Priority)
        self._max_tokens = limits.context_pages * limits.page_len
        self.refusal: str | None = None
        self.num_inside = 0
        self.rows = 0
        self.tokens = 0

    def check(self, demand: Demand) -> None:
        """Refuse what would not be let in now, before anything is done for it. Takes nothing in; raises as `enter`.

        demand: at most what it will turn out to be, so that nothing that passes here is too large by mistake.
        """
        with self._lock:
            self._admissible(demand)

    def enter(self, demand: Demand) -> Place:
        """Take a request in; it must leave again.

        Raises Overloaded with limit queue_full or deadline, DeadlineExpired, or NotReady while there is a refusal.
        """
        with self._lock:
            place = self._admissible(demand)
            self._count(place, 1)
        return place

    def admit(self, demand: Demand) -> Place:
        """Take in what the service asks for itself, however full the queue is; it must leave again.

        Raises NotReady while there is a refusal.
        """
        with self._lock:
            if self.refusal is not None:
                raise NotReady(self.refusal)
            place = self._place(demand, self._clock())
            self._count(place, 1)
        return place

    def leave(self, place: Place, outcome: BeamResult | RecallError) -> None:
        """The engine has let go of a request. outcome: how it ended, to learn from."""
        now = self._clock()
        with self._lock:
            self._count(place, -1)
            if isinstance(outcome, BeamResult):
                self._learn(place, outcome.queue_seconds, outcome.prefill_seconds + outcome.decode_seconds, now)
            elif isinstance(outcome, DeadlineExpired):
                self._learn_at_least(place, outcome.stage, now)

    def note_ended(self, work: int, *, more_waits: bool) -> None:
        """The engine has answered searches of so much work; more_waits: others wait that had no room beside them.

        Also to be told, with no work, when nobody waits any more: what follows is not time that it was busy.
        """
        with self._lock:
            self._estimate.note_ended(work, self._clock(), more_waits=more_waits)

    def _admissible(self, demand: Demand) -> Place:
        now = self._clock()
        if self.refusal is not None:
            raise NotReady(self.refusal)
        if demand.deadline is not None and demand.deadline <= now:
            raise DeadlineExpired("queue")
        place = self._place(demand, now)
        if self.num_inside:
            self._refuse_beyond_the_queue(place)
            self._refuse_beyond_the_deadline(place, demand.deadline)
        return place

    def _place(self, demand: Demand, now: float) -> Place:
        rows, work, page_len = demand.beam_width, demand.work, self._limits.page_len
        tokens = -(-demand.prompt_len // page_len) * page_len
        fits = self.rows + rows <= self._limits.max_rows and self.tokens + tokens <= self._max_tokens
        wait = None if fits else self._estimate.wait_seconds(self._work_ahead(demand.priority) + work, now)
        return Place(rows, tokens, work, demand.priority, now, wait)

    def _work_ahead(self, priority: Priority) -> int:
        """What waits and goes first. Not what is of lower priority, though some of it may have aged enough."""
        ahead = zip(self._work[: priority + 1], self._running_work(), strict=False)
        return sum(max(0, inside - running) for inside, running in ahead)

    def _refuse_beyond_the_queue(self, place: Place) -> None:
        share = QUEUE_SHARES[place.priority]
        for name, held, asked, running, waiting in (
            ("beams", self.rows, place.rows, self._limits.max_rows, self._limits.max_queue_rows),
            ("prompt tokens", self.tokens, place.tokens, self._max_tokens, self._limits.max_queue_tokens),
        ):
            if held + asked > running + share * waiting:
                queue = f"the queue is full for priority {place.priority.name}: {held} {name} are under way"
                raise Overloaded(queue, retry_after_seconds=self._retry_after(place))

    def _refuse_beyond_the_deadline(self, place: Place, deadline: float | None) -> None:
        """With room at once it is let in unless nobody is that fast; to wait, it has to be all but sure of its time."""
        if deadline is None:
            return
        estimate, remaining = self._estimate, deadline - place.entered
        if place.foreseen_wait is None:
            needed = estimate.least_service_seconds
        else:
            wait = max(0.0, place.foreseen_wait + estimate.surprise_seconds(place.entered))
            needed = wait + estimate.most_service_seconds
        if needed > remaining:
            raise Overloaded(
                f"it would take about {needed:.3f} s, and the deadline is in {remaining:.3f} s",
                retry_after_seconds=self._retry_after(place),
                limit="deadline",
            )

    def _retry_after(self, place: Place) -> float:
        """Seconds until about all that is ahead now will have gone."""
        seconds = place.foreseen_wait or self._estimate.most_service_seconds or _RETRY_UNMEASURED_SECONDS
        least, most = _RETRY_SECONDS
        jitter = 1 + _RETRY_JITTER * (2 * self._chance() - 1)
        return min(max(seconds, least), most) * jitter

    def _learn(self, place: Place, queue_seconds: float, service_seconds: float, now: float) -> None:
        if place.foreseen_wait is not None:
            self._estimate.note_wait(queue_seconds, place.foreseen_wait, now)
            self._estimate.note_service(service_seconds, now)
        else:  # there was room, so what passed until the next step began is a part of being served
            self._estimate.note_service(queue_seconds + service_seconds, now)

    def _learn_at_least(self, place: Place, stage: str, now: float) -> None:
        """From a search that ran out of time: what it was at would have taken longer still."""
        seconds = now - place.entered
        if stage != "queue":
            self._estimate.note_service_at_least(seconds - (place.foreseen_wait or 0.0), now)
        elif place.foreseen_wait is not None:
            self._estimate.note_wait(seconds, place.foreseen_wait, now)

    def _count(self, place: Place, times: int) -> None:
        self.num_inside += times
        self.rows += times * place.rows
        self.tokens += times * place.tokens
        self._work[place.priority] += times * place.work
