"""A queue before servers that take a fixed time, on a clock of its own: what an admission gate is tried on."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recall_service.engine.request import BeamResult, Demand, Priority
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import DeadlineExpired, Overloaded
from recall_service.serving.admission_gate import AdmissionGate, Place

_NUM_STEPS = 4


def request_of(
    width: int = 1, prompt_len: int = 1, *, deadline: float | None = None, priority: Priority = Priority.NORMAL
) -> Demand:
    """What a search of two levels asks for: `width` rows, and prompt_len + width of work."""
    return Demand(prompt_len=prompt_len, beam_width=width, path_len=2, priority=priority, deadline=deadline)


def result_of(*, queue_seconds: float = 0.0, service_seconds: float = 0.0) -> BeamResult:
    """An empty answer that took so long."""
    nothing: Any = np.empty(0)
    times = {"queue_seconds": queue_seconds, "prefill_seconds": 0.0, "decode_seconds": service_seconds}
    return BeamResult(nothing, nothing, nothing, nothing, None, None, 0.0, 0, 0, 0, 0, submitted=0.0, steps=(), **times)


@dataclass(slots=True, eq=False)
class _Job:
    place: Place
    deadline: float
    steps_left: int = _NUM_STEPS
    started: float = 0.0


@dataclass(slots=True, eq=False)
class SimulatedEngine:
    """num_servers at once, first come first served, service_seconds each at speed 1. It goes in steps, _NUM_STEPS a
    search, and takes others in between two of them, as a BeamEngine does.

    answered, late, refused: when each answer was given, each deadline passed inside, each request was refused.
    """

    num_servers: int
    service_seconds: float
    seed: int
    speed: Callable[[float], float] = lambda _: 1.0
    now: float = 0.0
    answered: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    gate: AdmissionGate = field(init=False)
    _waiting: "deque[_Job]" = field(default_factory=deque)
    _running: "list[_Job]" = field(default_factory=list)

    def __post_init__(self) -> None:
        limits = EngineLimits(max_rows=self.num_servers, max_queue_rows=4 * self.num_servers, page_len=1)
        self.gate = AdmissionGate(
            limits, self._running_work, clock=lambda: self.now, chance=np.random.default_rng(self.seed).random
        )

    @property
    def capacity(self) -> float:
        """Answers a second at speed 1."""
        return self.num_servers / self.service_seconds

    def run(self, seconds: float, arrivals_per_second: float, budget_seconds: float, *, retries: int = 0) -> None:
        """Let requests come at random, each with so long to its deadline.

        retries: how often one that was refused comes back, after what it was advised, while its deadline allows.
        """
        rng = np.random.default_rng(self.seed)
        end = self.now + seconds
        to_come = [(self.now + float(rng.exponential(1 / arrivals_per_second)), 0.0, 0)]  # when, deadline, retries left
        while self.now < end:
            self._begin_step()
            step_ends = self.now + self.service_seconds / _NUM_STEPS / self.speed(self.now)
            while to_come[0][0] <= step_ends:
                self.now, deadline, retries_left = heapq.heappop(to_come)
                if not deadline:  # one that comes for the first time, and after it there comes another
                    deadline, retries_left = self.now + budget_seconds, retries
                    heapq.heappush(to_come, (self.now + float(rng.exponential(1 / arrivals_per_second)), 0.0, 0))
                delay = self._arrive(deadline)
                if delay is not None and retries_left and self.now + delay < deadline:
                    heapq.heappush(to_come, (self.now + delay, deadline, retries_left - 1))
            self.now = step_ends
            self._end_step()

    def _running_work(self) -> list[int]:
        return [0, sum(job.place.work for job in self._running), 0]

    def _arrive(self, deadline: float) -> float | None:
        """Seconds after which to come back, where it was refused."""
        try:
            place = self.gate.enter(request_of(deadline=deadline))
        except Overloaded as refusal:
            self.refused.append(self.now)
            return refusal.retry_after_seconds
        self._waiting.append(_Job(place, deadline))
        return None

    def _begin_step(self) -> None:
        self._waiting = deque(job for job in self._waiting if not self._expire(job, "queue"))
        self._running = [job for job in self._running if not self._expire(job, "decode")]
        while self._waiting and len(self._running) < self.num_servers:
            job = self._waiting.popleft()
            job.started = self.now
            self._running.append(job)

    def _end_step(self) -> None:
        for job in self._running:
            job.steps_left -= 1
        ended = [job for job in self._running if not job.steps_left]
        self._running = [job for job in self._running if job.steps_left]
        for job in ended:
            waited = job.started - job.place.entered
            self.gate.leave(job.place, result_of(queue_seconds=waited, service_seconds=self.now - job.started))
            (self.answered if self.now <= job.deadline else self.late).append(self.now)
        if ended or not self._waiting:
            self.gate.note_ended(sum(job.place.work for job in ended), more_waits=bool(self._waiting))

    def _expire(self, job: _Job, stage: str) -> bool:
        if job.deadline > self.now:
            return False
        self.gate.leave(job.place, DeadlineExpired(stage))
        self.late.append(self.now)
        return True
