"""Where the rooms report what they do. Serving calls what it was handed and never knows who listens.

An Observer counts over all questions; a Tracer is told of each question by itself.
"""

from typing import Protocol


class Observer(Protocol):
    """Everything worth counting between a question and its answer. Calls are cheap and never raise.

    Durations are in seconds. Names passed as strings come from small fixed sets, given beside each method.
    """

    def stage(self, stage: str, seconds: float) -> None:
        """A stage ended: validate, cache_get, filter, prompt, queue, prefill, decode, map, cache_put, serialize.

        And select, a part of decode, where the engine can tell the two apart.
        """

    def answered(
        self,
        scene: str,
        outcome: str,
        seconds: float,
        *,
        items: int,
        proven: int,
        beam_width: int,
        unknown_history: int,
    ) -> None:
        """A question was answered: outcome is ok, cached or short."""

    def failed(self, scene: str, seconds: float) -> None:
        """A question ended in an error."""

    def short(self, reason: str) -> None:
        """An answer was short: catalog_exhausted, beam_too_narrow or filter_too_narrow."""

    def rejected(self, reason: str) -> None:
        """A question was refused before any work, by whatever `Overloaded.limit` names, or for being invalid.

        And a call, for not_ready, unauthenticated or permission_denied.
        """

    def deadline_expired(self, stage: str) -> None:
        """A deadline passed in stage queue, prefill or decode."""

    def cache_request(self, tier: str, result: str) -> None:
        """A tier (local, redis) was asked: hit, stale, miss, error. Or passed by, for a question let in: bypass."""

    def cache_operation(self, tier: str, operation: str, seconds: float) -> None:
        """A tier (local, redis) finished a get or a put."""

    def cache_coalesced(self) -> None:
        """A question waited for an equal one in flight instead of being computed again."""

    def cache_refresh(self, result: str) -> None:
        """A stale answer was computed anew (done), could not be (failed), or there was no room for it (dropped)."""

    def cache_breaker(self, *, is_open: bool) -> None:
        """The breaker in front of Redis opened or closed."""

    def step(self, phase: str, *, requests: int, rows: int) -> None:
        """The engine ran one step: phase is prefill or decode."""

    def engine_health(self, bundle: str, *, healthy: bool) -> None:
        """The engine of a bundle is found fit to search, or not: stuck in a step, or failing every one."""

    def prefix_tokens(self, *, hit: int, miss: int) -> None:
        """A prompt was searched: so many of its tokens were in the engine's prefix cache, so many were run."""

    def rows_skipped(self, phase: str, rows: int) -> None:
        """So many rows of one search did not have to be run: phase is decode."""

    def filter_resolved(self, result: str, seconds: float) -> None:
        """What a filter keeps is known: it was remembered (hit), or looked up in the catalogue (computed)."""

    def unknown_excluded(self, count: int) -> None:
        """So many of the items that a question excludes are not in the catalogue."""

    def bundle(self, bundle: str, version: str, score_space: str) -> None:
        """A bundle went live, in place of the one of that name, if any."""

    def catalog(self, bundle: str, version: str, items: int) -> None:
        """A catalogue went live in a bundle, in place of the one before, if any."""

    def reloaded(self, kind: str, result: str) -> None:
        """A bundle or a catalogue (kind) was to go live while serving: result is ok or failed."""

    def warmed_up(self, bundle: str, seconds: float) -> None:
        """A bundle is warm."""


class NullObserver:
    """Listens to nothing; the default everywhere."""

    def stage(self, stage: str, seconds: float) -> None: ...
    def answered(
        self,
        scene: str,
        outcome: str,
        seconds: float,
        *,
        items: int,
        proven: int,
        beam_width: int,
        unknown_history: int,
    ) -> None: ...
    def failed(self, scene: str, seconds: float) -> None: ...
    def short(self, reason: str) -> None: ...
    def rejected(self, reason: str) -> None: ...
    def deadline_expired(self, stage: str) -> None: ...
    def cache_request(self, tier: str, result: str) -> None: ...
    def cache_operation(self, tier: str, operation: str, seconds: float) -> None: ...
    def cache_coalesced(self) -> None: ...
    def cache_refresh(self, result: str) -> None: ...
    def cache_breaker(self, *, is_open: bool) -> None: ...
    def step(self, phase: str, *, requests: int, rows: int) -> None: ...
    def engine_health(self, bundle: str, *, healthy: bool) -> None: ...
    def prefix_tokens(self, *, hit: int, miss: int) -> None: ...
    def rows_skipped(self, phase: str, rows: int) -> None: ...
    def filter_resolved(self, result: str, seconds: float) -> None: ...
    def unknown_excluded(self, count: int) -> None: ...
    def bundle(self, bundle: str, version: str, score_space: str) -> None: ...
    def catalog(self, bundle: str, version: str, items: int) -> None: ...
    def reloaded(self, kind: str, result: str) -> None: ...
    def warmed_up(self, bundle: str, seconds: float) -> None: ...


class Tracer(Protocol):
    """Where the time of one question went. Called in the task that asked, once the part has ended; never raises."""

    def span(self, name: str, started: float, ended: float, **facts: str | int) -> None:
        """A part of the question: cache, prompt, queue, prefill, decode, level 0, level 1, ..., map.

        Instants are in seconds of `time.monotonic()`. facts: what else is known of it; never a history or an item.
        """


class NullTracer:
    """Draws nothing; the default everywhere."""

    def span(self, name: str, started: float, ended: float, **facts: str | int) -> None: ...
