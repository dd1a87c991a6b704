"""Which bundles are live. A request pins one and keeps it to its end, whatever goes live meanwhile."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakSet

from recall_service.errors import UnknownVersion
from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.engine_runner import STOP_SECONDS, EngineRunner
from recall_service.serving.query import BundleInfo

_SECONDS_BETWEEN_LOOKS = 0.05  # at whether a request still needs an engine that is replaced


class Registry:
    """Live bundles by name, the default one first. Changed by one event loop; `load` is for any thread."""

    def __init__(self, live: Sequence[LiveBundle]) -> None:
        self._live = {entry.info.name: entry for entry in live}
        self._infos = tuple(entry.info for entry in live)
        self._alive = WeakSet(live)  # those too that were replaced and that a request still pins
        self._retired: list[EngineRunner] = []

    def __iter__(self) -> Iterator[LiveBundle]:
        return iter(self._live.values())

    @property
    def infos(self) -> Sequence[BundleInfo]:
        """What callers may know, the default bundle first."""
        return self._infos

    def pin(self, name: str) -> LiveBundle:
        """The bundle of that name, or the default one for an empty name. Raises UnknownVersion."""
        if not name:
            return next(iter(self._live.values()))
        if name not in self._live:
            raise UnknownVersion(f"bundle {name!r} is not served here; served are {', '.join(self._live)}")
        return self._live[name]

    def replace(self, live: LiveBundle) -> LiveBundle:
        """From now on `live` is pinned under its name; returns what was before.

        The engine of that one, if another, runs on until `retire`.
        """
        before = self._live[live.info.name]
        self._alive.add(live)
        self._live = {**self._live, live.info.name: live}  # anew: the scraper's thread may be walking through the old
        self._infos = tuple(entry.info for entry in self)
        if live.runner is not before.runner:
            self._retired.append(before.runner)
        return before

    async def retire(self, runner: EngineRunner, seconds: float) -> None:
        """Stop an engine that was replaced, once no request needs it any more, and at the latest after `seconds`.

        What still runs then fails with NotReady.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(entry.runner is runner for entry in self._alive):  # noqa: ASYNC110
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        await asyncio.to_thread(runner.stop)
        self._retired.remove(runner)

    def load(self) -> Mapping[str, float]:
        """How full the engines are now, summed over bundles: requests, rows, and pages of context.

        And for how long, in seconds, the one that has waited longest has waited. What has entered an engine's gate
        and does not run counts as waiting, whether or not the engine has seen it yet. Engines that were replaced do not
        count.
        """
        runners = [entry.runner for entry in self]
        engines = [runner.engine for runner in runners]
        return {
            "queue_depth": sum(runner.num_waiting for runner in runners),
            "queue_rows": sum(max(0, runner.gate.rows - runner.engine.reserved_rows) for runner in runners),
            "queue_tokens": sum(max(0, runner.gate.tokens - runner.engine.reserved_tokens) for runner in runners),
            "queue_age_seconds": max(engine.queue_age_seconds for engine in engines),
            "inflight_requests": sum(engine.num_running for engine in engines),
            "beam_rows_used": sum(engine.num_rows for engine in engines),
            "beam_rows_free": sum(engine.limits.max_rows - engine.num_rows for engine in engines),
            "context_pages_used": sum(engine.prefixes.num_used for engine in engines),
            "context_pages_cached": sum(engine.prefixes.num_cached for engine in engines),
            "context_pages_free": sum(engine.pages.num_free for engine in engines),
        }

    def close(self) -> None:
        """Stop the engines, all at once, so that several that are stuck take no longer than one does.

        What still runs fails with NotReady.
        """
        until = time.monotonic() + STOP_SECONDS
        runners = [*(entry.runner for entry in self), *self._retired]
        for runner in runners:
            runner.tell_to_stop()
        for runner in runners:
            runner.stop(until - time.monotonic())
