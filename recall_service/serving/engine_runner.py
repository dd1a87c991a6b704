"""Drives a BeamEngine in a thread of its own, so that a step never holds up the event loop; asyncio code awaits it."""

import asyncio
import concurrent.futures
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from recall_service.engine.engine import BeamEngine, Completion
from recall_service.engine.request import BeamRequest, BeamResult
from recall_service.errors import EngineFailure, NotReady, RecallError

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Ticket:
    """One search under way. `request_id` is the engine's name for it, once the engine has it."""

    request: BeamRequest
    future: "asyncio.Future[BeamResult]"
    loop: asyncio.AbstractEventLoop
    request_id: int | None = None


class EngineRunner:
    """One engine, one thread. Everything that touches the engine is a call in its inbox, run between two steps."""

    def __init__(self, engine: BeamEngine, name: str) -> None:
        self.engine = engine
        self._tickets: dict[int, Ticket] = {}
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self._thread.start()

    async def search(self, request: BeamRequest, stage: Callable[[str], None] = lambda _: None) -> BeamResult:
        """The beams of a request. Raises what the engine raises. When cancelled, the engine's work stops as well.

        stage: told where the request was when it is cancelled.
        """
        if self._stopping:
            raise NotReady("the engine is stopping")
        loop = asyncio.get_running_loop()
        ticket = Ticket(request, loop.create_future(), loop)
        self._inbox.put(partial(self._submit, ticket))
        try:
            return await ticket.future
        except asyncio.CancelledError:
            if ticket.request_id is not None:
                stage(self.engine.stage_of(ticket.request_id))
            self._inbox.put(partial(self._cancel, ticket))
            raise

    async def prepare(self, request: BeamRequest) -> None:
        """Make ready what any number of requests of this shape will run on, in the engine's thread.

        Raises what the engine raises.
        """
        if self._stopping:
            raise NotReady("the engine is stopping")
        prepared: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                self.engine.prepare(request)
            except Exception as error:  # noqa: BLE001  whoever waits for it raises it
                prepared.set_exception(error)
            else:
                prepared.set_result(None)

        self._inbox.put(run)
        await asyncio.wrap_future(prepared)

    def stop(self) -> None:
        """Fail what is under way with NotReady and end the thread. Blocks until the running step ends."""
        self._stopping = True
        self._inbox.put(lambda: None)
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._run_inbox(wait=self.engine.is_idle)
                completed = self.engine.step()
            except Exception as error:  # a fault of ours must not end the thread that serves everyone
                logger.exception("a step of the engine raised; its requests fail")
                completed = self.engine.abort(EngineFailure(f"the step failed: {type(error).__name__}"))
            self._deliver(completed)
        self._run_inbox(wait=False)
        self._deliver(self.engine.abort(NotReady("the engine is stopping")))

    def _run_inbox(self, *, wait: bool) -> None:
        try:
            while True:
                self._inbox.get(block=wait)()
                wait = False
        except queue.Empty:
            return

    def _submit(self, ticket: Ticket) -> None:
        try:
            ticket.request_id = self.engine.submit(ticket.request)
        except RecallError as error:
            self._resolve_soon(ticket, error)
            return
        except Exception as error:
            logger.exception("a request could not be submitted; it fails alone")
            self._resolve_soon(ticket, EngineFailure(f"submitting failed: {type(error).__name__}"))
            return
        self._tickets[ticket.request_id] = ticket

    def _cancel(self, ticket: Ticket) -> None:
        if ticket.request_id in self._tickets:
            assert ticket.request_id is not None
            self.engine.cancel(ticket.request_id)

    def _deliver(self, completed: list[Completion]) -> None:
        for completion in completed:
            if isinstance(completion.outcome, EngineFailure):
                logger.error("a search failed: %s", completion.outcome, exc_info=completion.outcome)
            self._resolve_soon(self._tickets.pop(completion.request_id), completion.outcome)

    @staticmethod
    def _resolve_soon(ticket: Ticket, outcome: BeamResult | RecallError) -> None:
        try:
            ticket.loop.call_soon_threadsafe(_resolve, ticket.future, outcome)
        except RuntimeError:
            logger.debug("the event loop that asked is gone; its answer is dropped")


def _resolve(future: "asyncio.Future[BeamResult]", outcome: BeamResult | RecallError) -> None:
    """Settle a future in its own loop. One that was cancelled meanwhile stays as it is."""
    if future.done():
        return
    if isinstance(outcome, RecallError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
