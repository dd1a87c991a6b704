"""One run: questions go out when the schedule says, answered or not, and what came of each is recorded.

Open loop: a server that stalls does not slow the asking down, so the questions it kept waiting are measured too. Only
the cap on calls in flight can hold a question back; its lag then shows, and the ending says so.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from recall_service.errors import RecallError, ReplayError
from recall_service.replay.asked import Asked
from recall_service.replay.cancellation import Cancellation
from recall_service.replay.outcome import Outcome
from recall_service.replay.schedule import Scheduled
from recall_service.replay.target import Reply, Target
from recall_service.replay.totals import RunningTotals

_DEFAULT_TIMEOUT_SECONDS = 5.0
_FEWEST_UNREACHED = 10
_GIVEN_UP = Reply("CANCELLED")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How a run goes about it.

    max_in_flight: calls under way at once, at most; a question that finds no room waits for it.
    timeout_seconds: deadline of every question, from the moment it is sent; None: what the source says, else 5.
    warm_up_seconds, warm_up_questions: outcomes of what was to be sent before, and of the first so many, are flagged.
    cancel_share: of the questions, given up after a random part of their deadline; `seed` decides which.
    unreachable_after_seconds: the run ends when nobody has been there for so long.
    """

    max_in_flight: int = 1_000
    timeout_seconds: float | None = None
    warm_up_seconds: float = 0.0
    warm_up_questions: int = 0
    cancel_share: float = 0.0
    seed: int = 0
    unreachable_after_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended. `failure` says why before the last question; empty when it came to its end."""

    failure: str
    num_given_up: int

    @property
    def is_complete(self) -> bool:
        """Every question was asked, and its outcome recorded."""
        return not self.failure


async def run_replay(
    scheduled: Iterator[Scheduled],
    target: Target,
    record: Callable[[Outcome], None],
    settings: RunSettings,
    totals: RunningTotals,
    stop: asyncio.Event,
) -> Ending:
    """Ask all questions of an open target, or until `stop` is set, the target is gone, or `record` or the source fails.

    `record` gets every outcome as it is done; what is in flight when a run ends early has none. `totals` is kept up.
    """
    run = _Run(target, record, settings, totals)
    asking = asyncio.create_task(run.ask_all(scheduled))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            run.fail("interrupted")
    finally:
        asking.cancel()
        stopping.cancel()
        await asyncio.wait({asking, stopping})
    if not asking.cancelled():
        _raise_bug(asking.exception())
    return Ending(run.failure, totals.num_in_flight)


class _Run:
    """The state of one run. `failure` is the first reason to end it early, if there was one."""

    def __init__(
        self, target: Target, record: Callable[[Outcome], None], settings: RunSettings, totals: RunningTotals
    ) -> None:
        self.failure = ""
        self._target, self._record, self._settings, self._totals = target, record, settings, totals
        self._room = asyncio.Semaphore(settings.max_in_flight)
        self._cancellation = Cancellation(settings.cancel_share, settings.seed)
        self._started = 0.0
        self._reached_seconds = 0.0
        self._num_unreached = 0

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason

    async def ask_all(self, scheduled: Iterator[Scheduled]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    await self._send(scheduled, group)
                except RecallError as error:  # of the source; what is in flight may end
                    self.fail(str(error))
        except* ReplayError as errors:  # of one question's task: no disk, nobody there
            self.fail(str(errors.exceptions[0]))

    async def _send(self, scheduled: Iterator[Scheduled], group: asyncio.TaskGroup) -> None:
        settings = self._settings
        first = list(islice(scheduled, 1))  # a source may have much to read before it gives its first question
        self._started = time.monotonic()
        for position, (intended, asked) in enumerate(chain(first, scheduled)):
            if intended is not None:
                await asyncio.sleep(max(0.0, intended - self._now()))  # also when late: answers must be read
                self._totals.num_waited_for_room += self._room.locked()
            await self._room.acquire()
            if intended is None:
                intended = self._now()
            is_warm_up = position < settings.warm_up_questions or intended < settings.warm_up_seconds
            timeout = settings.timeout_seconds or asked.deadline_seconds or _DEFAULT_TIMEOUT_SECONDS
            group.create_task(self._ask(asked, intended, timeout, self._cancellation.draw(timeout), is_warm_up))

    async def _ask(
        self, asked: Asked, intended: float, timeout_seconds: float, cancel_after: float | None, is_warm_up: bool
    ) -> None:
        sent = max(self._now(), intended)  # a timer may be early by less than the clock shows
        self._totals.sent(intended, sent)
        was_cancelled = False
        try:
            async with asyncio.timeout(cancel_after):
                reply = await self._target.ask(asked, timeout_seconds)
        except TimeoutError:
            reply, was_cancelled = _GIVEN_UP, True
        finally:
            self._room.release()
        done = self._now()
        outcome = Outcome(
            index=asked.index,
            scene=asked.request.scene,
            intended_seconds=intended,
            sent_seconds=sent,
            done_seconds=done,
            code=reply.code,
            error_reason=reply.error_reason,
            was_cancelled=was_cancelled,
            is_warm_up=is_warm_up,
            answer=reply.answer,
        )
        self._totals.done(outcome)
        self._record(outcome)
        self._watch_reach(reply, done)

    def _watch_reach(self, reply: Reply, now: float) -> None:
        """Raises ReplayError when it is time to think that nobody is there any more."""
        if not reply.is_from_nobody:
            self._reached_seconds, self._num_unreached = now, 0
            return
        self._num_unreached += 1
        alone_seconds = now - self._reached_seconds
        if alone_seconds > self._settings.unreachable_after_seconds and self._num_unreached >= _FEWEST_UNREACHED:
            raise ReplayError(f"the target could not be reached for {alone_seconds:.1f} s; see whether it still runs")

    def _now(self) -> float:
        """Seconds from the start of the run."""
        return time.monotonic() - self._started


def _raise_bug(error: BaseException | None) -> None:
    if error is not None:
        raise error
