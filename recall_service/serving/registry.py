"""Which bundles are live. A request pins one and keeps it to its end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import BundleError, EngineFailure, Overloaded, SetupError, UnknownVersion
from recall_service.serving.bundle import Bundle, check_setup
from recall_service.serving.engine_runner import STOP_SECONDS, EngineRunner
from recall_service.serving.hooks import Observer
from recall_service.serving.query import BundleInfo


@dataclass(frozen=True, slots=True, eq=False)
class LiveBundle:
    """A bundle, the engine that searches it, and what callers may know of it."""

    bundle: Bundle
    runner: EngineRunner
    info: BundleInfo

    async def warm_up(self) -> None:
        """Search once with the widest beam after the longest history prompt, so that no caller pays for first times.

        A GPU's engine also makes ready the steps of any number of requests of the default width.
        Raises SetupError when that fails.
        """
        template, prompt = self.bundle.template, self.bundle.file.prompt
        trie = self.bundle.catalog.trie
        leaves = np.arange(prompt.max_history) % trie.num_leaves
        widest = BeamRequest(
            prompt=template.build(trie.leaf_sids(leaves)),
            beam_width=self.info.max_beam_width,
            constraint=self.bundle.constraint,
            score_space=self.info.score_space,
        )
        try:
            await self.runner.search(widest)
            await self.runner.prepare(replace(widest, beam_width=self.info.default_beam_width))
        except (EngineFailure, Overloaded) as error:
            raise SetupError(f"bundle {self.info.name}: its first search failed: {error}") from error


class Registry:
    """Live bundles by name, the default one first."""

    def __init__(self, live: Sequence[LiveBundle]) -> None:
        self._live = {entry.info.name: entry for entry in live}
        self._infos = tuple(entry.info for entry in live)

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

    def load(self) -> Mapping[str, float]:
        """How full the engines are now, summed over bundles: requests, rows, and pages of context.

        And for how long, in seconds, the one that has waited longest has waited. What has entered an engine's gate
        and does not run counts as waiting, whether or not the engine has seen it yet.
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
        for entry in self:
            entry.runner.tell_to_stop()
        for entry in self:
            entry.runner.stop(until - time.monotonic())


def open_registry(
    directories: Sequence[Path], default: str, limits: EngineLimits, observer: Observer, device: str = "cpu"
) -> Registry:
    """Load bundles, check that the engine's limits carry them, and start an engine for each.

    device: where the models live, cpu or cuda.
    default: name of the bundle asked when a request names none; empty for the first directory's.
    Raises SetupError before any engine is started.
    """
    if not directories:
        raise BundleError("bundles: none given; name at least one bundle directory")
    bundles: dict[str, Bundle] = {}
    for directory in directories:
        bundle = check_setup(directory, device)
        if bundle.name in bundles:
            raise BundleError(f"{directory}: another bundle is called {bundle.name!r}; rename one")
        _check_limits(bundle, limits)
        bundles[bundle.name] = bundle
    if default and default not in bundles:
        raise BundleError(f"default_bundle: {default!r} is none of {', '.join(bundles)}; correct it")
    ordered = sorted(bundles.values(), key=lambda bundle: bundle.name != default) if default else bundles.values()
    return Registry([_go_live(bundle, limits, observer) for bundle in ordered])


def _check_limits(bundle: Bundle, limits: EngineLimits) -> None:
    search, prompt = bundle.file.search, bundle.file.prompt
    if search.max_beam_width > limits.max_rows:
        raise BundleError(
            f"bundle {bundle.name}: search.max_beam_width is {search.max_beam_width}, the setting max_rows is "
            f"{limits.max_rows}; raise the setting or lower the width"
        )
    most_rows = replace(limits, max_steps=bundle.catalog.layout.num_levels).num_slots + 1  # the prompt takes no slot
    if search.proven_row_budget > most_rows:
        raise BundleError(
            f"bundle {bundle.name}: search.proven_row_budget is {search.proven_row_budget}, with the setting max_rows "
            f"at {limits.max_rows} a search can keep {most_rows}; raise the setting or lower the budget"
        )
    longest = bundle.template.length(prompt.max_history)
    if longest > limits.max_prompt_tokens:
        raise BundleError(
            f"bundle {bundle.name}: prompt.max_history {prompt.max_history} makes {longest} tokens, the setting "
            f"max_prompt_tokens is {limits.max_prompt_tokens}; raise the setting or lower max_history"
        )


def _go_live(bundle: Bundle, limits: EngineLimits, observer: Observer) -> LiveBundle:
    engine = BeamEngine(
        bundle.model,
        replace(limits, max_steps=bundle.catalog.layout.num_levels),
        observe_step=lambda step: observer.step(step.phase, requests=step.requests, rows=step.rows),
    )
    search = bundle.file.search
    info = BundleInfo(
        name=bundle.name,
        version=bundle.version,
        catalog_version=bundle.catalog.version,
        catalog_items=bundle.catalog.num_items,
        codebook_sizes=bundle.catalog.layout.codebook_sizes,
        score_space=search.score_space,
        default_beam_width=search.beam_width,
        max_beam_width=search.max_beam_width,
        default_num_items=search.num_items,
        max_num_items=search.max_num_items,
        max_prompt_tokens=min(bundle.max_prompt_tokens, limits.max_prompt_tokens),
        max_history=bundle.file.prompt.max_history,
    )
    return LiveBundle(bundle, EngineRunner(engine, bundle.name, observer), info)
