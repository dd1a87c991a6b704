"""Drives a BeamEngine in a thread of its own, so that a step never holds up the event loop; asyncio code awaits it."""

import asyncio
import concurrent.futures
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from recall_service.engine.engine import BeamEngine, Completion
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.errors import (
    DeadlineExpired,
    EngineFailure,
    ModelOutputError,
    NotReady,
    Overloaded,
    RecallError,
    RequestCancelled,
)
from recall_service.serving.admission_gate import AdmissionGate, Place
from recall_service.serving.hooks import NullObserver, Observer

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0  # that stopping waits for a step under way


@dataclass(slots=True, eq=False)
class Ticket:
    """One search under way. `request_id` is the engine's name for it, once the engine has it."""

    request: BeamRequest
    place: Place
    future: "asyncio.Future[BeamResult]"
    loop: asyncio.AbstractEventLoop
    request_id: int | None = None


class EngineRunner:
    """One engine, one thread. Everything that touches the engine is a call in its inbox, run between two steps.

    gate: what every search has to pass, whatever the engine is doing; a place in it is free again once the engine has
        let go of the search.
    step_started: when the step under way, or the call between two, began, seconds of `time.monotonic()`; None for
        neither.
    failed_steps: how many steps have failed since a search was last answered.
    """

    def __init__(self, engine: BeamEngine, name: str, observer: Observer | None = None) -> None:
        self.engine = engine
        self.name = name
        self.gate = AdmissionGate(engine.limits, lambda: engine.reserved_work)
        self.step_started: float | None = None
        self.failed_steps = 0
        self._observer = observer or NullObserver()
        self._tickets: dict[int, Ticket] = {}  # by the engine's names; the thread's own
        self._awaited: set[Ticket] = set()  # those that somebody awaits; the loop's own
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether its thread still runs."""
        return self._thread.is_alive()

    @property
    def num_waiting(self) -> int:
        """What is inside the gate and does not run, whether or not the engine has seen it yet. For any thread."""
        return max(0, self.gate.num_inside - self.engine.num_running)

    async def search(
        self, request: BeamRequest, stage: Callable[[str], None] = lambda _: None, *, past_gate: bool = False
    ) -> BeamResult:
        """The beams of a request. When cancelled, the engine's work stops as well.

        stage: told where the request was when it is cancelled.
        past_gate: let in however full the engine is; for what the service asks for itself.
        Raises what the engine raises, and at once what the gate raises: Overloaded, DeadlineExpired, NotReady.
        """
        if self._stopping:
            raise NotReady("the engine is stopping")
        place = (self.gate.admit if past_gate else self.gate.enter)(request.demand)
        loop = asyncio.get_running_loop()
        ticket = Ticket(request, place, loop.create_future(), loop)
        self._awaited.add(ticket)
        self._inbox.put(partial(self._submit, ticket))
        try:
            return await ticket.future
        except (asyncio.CancelledError, NotReady):
            if ticket.request_id is not None:
                stage(self.engine.stage_of(ticket.request_id))
            self._inbox.put(partial(self._cancel, ticket))
            raise
        finally:
            self._awaited.discard(ticket)

    async def prepare(self, request: BeamRequest) -> None:
        """Make ready what any number of requests of this shape will run on, in the engine's thread.

        When cancelled, it is not begun any more; what has begun goes on, for nobody.
        Raises what the engine raises.
        """
        if self._stopping:
            raise NotReady("the engine is stopping")
        prepared: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            if not prepared.set_running_or_notify_cancel():
                return  # whoever asked has left
            try:
                self.engine.prepare(request)
            except Exception as error:  # noqa: BLE001  whoever waits for it raises it
                prepared.set_exception(error)
            else:
                prepared.set_result(None)

        self._inbox.put(run)
        await asyncio.wrap_future(prepared)

    def refuse(self, problem: str | None) -> None:
        """Let nobody in, and fail what is awaited, for `problem`; None lets in again. For the loop that searches."""
        self.gate.refusal = problem
        self._observer.engine_health(self.name, healthy=problem is None)
        if problem is not None:
            self._give_up(NotReady(problem))

    def probe(self, request: BeamRequest) -> None:
        """Have an idle engine search something, past the gate and for nobody: a step that ends well shows."""
        self._inbox.put(partial(self._submit_probe, request))

    def tell_to_stop(self) -> None:
        """Let nobody in any more; the thread ends after the running step, which nobody waits for here."""
        self._stopping = True
        self._inbox.put(lambda: None)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Fail what is under way with NotReady and end the thread. seconds: how long to wait for the running step."""
        self.tell_to_stop()
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            logger.error("engine %s is stuck in a step; it is left behind", self.name)
            self._give_up(NotReady("the engine is stopping"))

    def _give_up(self, error: RecallError) -> None:
        for ticket in list(self._awaited):
            self._resolve_soon(ticket, error)

    # What follows runs in the thread.

    def _run(self) -> None:
        while not self._stopping:
            self._deliver(self._turn())  # in no variable: it would keep the last error's frames while the thread waits
        self._run_inbox(wait=False)
        self._deliver(self.engine.abort(NotReady("the engine is stopping")))

    def _turn(self) -> list[Completion]:
        """What lies in the inbox, and a step."""
        try:
            self._run_inbox(wait=self.engine.is_idle)
            self.step_started = time.monotonic()
            completed = self.engine.step()
            has_failed = any(map(_is_failure_of_step, completed))
        except Exception as error:  # a fault of ours must not end the thread that serves everyone
            logger.exception("a step of the engine raised; its requests fail")
            completed = self.engine.abort(EngineFailure(f"the step failed: {type(error).__name__}"))
            has_failed = True
        finally:
            self.step_started = None
        self.failed_steps += has_failed
        return completed

    def _run_inbox(self, *, wait: bool) -> None:
        try:
            while True:
                call = self._inbox.get(block=wait)
                self.step_started = time.monotonic()  # a call, too, can wait for a GPU that hangs
                call()
                wait = False
        except queue.Empty:
            return

    def _submit(self, ticket: Ticket) -> None:
        if ticket.future.done():  # whoever asked has left, or ran out of time
            late = _is_late(ticket.request)
            self.gate.leave(ticket.place, DeadlineExpired("queue") if late else RequestCancelled("cancelled"))
            return
        try:
            ticket.request_id = self.engine.submit(ticket.request, arrived=ticket.place.entered)
        except RecallError as error:
            self._end(ticket, error)
        except Exception as error:
            logger.exception("a request could not be submitted; it fails alone")
            self._end(ticket, EngineFailure(f"submitting failed: {type(error).__name__}"))
        else:
            self._tickets[ticket.request_id] = ticket

    def _submit_probe(self, request: BeamRequest) -> None:
        if self.engine.is_idle:
            self.engine.submit(request)

    def _cancel(self, ticket: Ticket) -> None:
        if ticket.request_id not in self._tickets:
            return
        assert ticket.request_id is not None
        if not _is_late(ticket.request):  # or else the next step drops it by itself, and says how far it came
            self.engine.cancel(ticket.request_id)

    def _deliver(self, completed: list[Completion]) -> None:
        answered_work = 0
        for request_id, outcome in completed:
            if isinstance(outcome, EngineFailure):
                logger.error("a search failed: %s", outcome, exc_info=outcome)
            ticket = self._tickets.pop(request_id, None)
            if isinstance(outcome, BeamResult):
                self.failed_steps = 0
            if ticket is None:  # a probe
                continue
            if isinstance(outcome, BeamResult):
                answered_work += ticket.place.work
            self._end(ticket, outcome)
        more_waits = self.engine.num_waiting > 0
        if answered_work or not more_waits:
            self.gate.note_ended(answered_work, more_waits=more_waits)

    def _end(self, ticket: Ticket, outcome: BeamResult | RecallError) -> None:
        self.gate.leave(ticket.place, outcome)
        self._resolve_soon(ticket, outcome)

    @staticmethod
    def _resolve_soon(ticket: Ticket, outcome: BeamResult | RecallError) -> None:
        try:
            ticket.loop.call_soon_threadsafe(_resolve, ticket.future, outcome)
        except RuntimeError:
            logger.debug("the event loop that asked is gone; its answer is dropped")


def _is_late(request: BeamRequest) -> bool:
    return request.deadline is not None and request.deadline <= time.monotonic()


def _is_failure_of_step(completion: Completion) -> bool:
    """Whether it says that the engine is at fault, and not what one request made of the model.

    Memory may have run out for one request alone; without an answer in between it is the engine's.
    """
    outcome = completion.outcome
    if isinstance(outcome, Overloaded):
        return outcome.limit == "memory"
    return isinstance(outcome, EngineFailure) and not isinstance(outcome, ModelOutputError)


def _resolve(future: "asyncio.Future[BeamResult]", outcome: BeamResult | RecallError) -> None:
    """Settle a future in its own loop. One that was cancelled meanwhile stays as it is."""
    if future.done():
        return
    if isinstance(outcome, RecallError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
