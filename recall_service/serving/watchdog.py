"""Sees when an engine is of no use any more: stuck in a step, or failing every one. Knows nothing of health checks."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.engine_runner import EngineRunner

logger = logging.getLogger(__name__)

FAILED_STEPS = 5  # without an answer in between, and an engine counts as lost
_LOOKS_PER_STUCK_STEP = 4
_MOST_SECONDS_BETWEEN_LOOKS = 1.0


class Watchdog:
    """Looks after the engines of live bundles, from the event loop. While one is of no use, its gate is shut.

    live: gone through anew at every look, for bundles are replaced.
    stuck_step_seconds: how long a step may take.
    on_change: told whether all engines are healthy whenever that changes; at first they count as healthy.
    """

    def __init__(
        self,
        live: Iterable[LiveBundle],
        *,
        stuck_step_seconds: float,
        on_change: Callable[[bool], Awaitable[None]],
    ) -> None:
        self._live = live
        self._stuck_step_seconds = stuck_step_seconds
        self._on_change = on_change
        self._problems: dict[EngineRunner, str] = {}
        self._said_healthy = True

    async def run(self) -> None:
        """Look again and again, until cancelled. A look that raises is no reason to stop: nobody would see that."""
        seconds = min(self._stuck_step_seconds / _LOOKS_PER_STUCK_STEP, _MOST_SECONDS_BETWEEN_LOOKS)
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except Exception:
                logger.exception("a look at the engines raised; they are looked at again")

    async def look(self) -> None:
        """Look once at every engine. One that fails its steps is asked something, for nobody else asks it any more."""
        live_now = list(self._live)
        runners = {live.runner for live in live_now}
        self._problems = {runner: problem for runner, problem in self._problems.items() if runner in runners}
        for live in live_now:
            runner = live.runner
            problem = self._problem_of(runner)
            if problem is None and self._problems.pop(runner, None) is not None:
                logger.info("engine %s is well again", runner.name)
                runner.refuse(None)
            elif problem is not None and runner not in self._problems:
                logger.error("engine %s: %s", runner.name, problem)
                self._problems[runner] = problem
                runner.refuse(f"{problem}; ask another replica")
            if runner.failed_steps >= FAILED_STEPS and runner.step_started is None:
                runner.probe(live.sample_search(live.info.default_beam_width))
        healthy = not self._problems
        if healthy != self._said_healthy:
            await self._on_change(healthy)
            self._said_healthy = healthy  # not before: should that raise, it is said again at the next look

    def _problem_of(self, runner: EngineRunner) -> str | None:
        started = runner.step_started  # read once: the engine's thread may end the step meanwhile
        if not runner.is_alive:
            return "the engine's thread has ended"
        if started is not None and time.monotonic() - started > self._stuck_step_seconds:
            return f"the engine has been in one step for more than {self._stuck_step_seconds:g} s"
        if runner.failed_steps >= FAILED_STEPS:
            return f"{FAILED_STEPS} steps of the engine or more have failed in a row"
        return None
