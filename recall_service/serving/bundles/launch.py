"""How bundles go live: loaded, checked against the limits of the engine, and given one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recall_service.engine.engine import BeamEngine
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import BundleError
from recall_service.serving.bundles.bundle import Bundle, check_setup
from recall_service.serving.bundles.live_bundle import LiveBundle
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.engine_runner import EngineRunner
from recall_service.serving.filter_cache import FilterCache
from recall_service.serving.hooks import Observer
from recall_service.serving.query import BundleInfo


@dataclass(frozen=True, slots=True)
class Launch:
    """What every bundle of a process gets when it goes live.

    limits: of each engine; how many levels a bundle has is filled in here.
    filter_cache_bytes: of each bundle, for what filters leave of its catalogue.
    device: where the models live, cpu or cuda.
    """

    limits: EngineLimits
    observer: Observer
    filter_cache_bytes: int
    device: str = "cpu"

    def load(self, directory: Path) -> Bundle:
        """The bundle of a directory. Raises SetupError for one that is not sound, or that the limits do not carry."""
        bundle = check_setup(directory, self.device)
        _check_limits(bundle, self.limits)
        return bundle

    def start(self, bundle: Bundle) -> LiveBundle:
        """The bundle with an engine of its own, which runs. Raises SettingsError when there is no room for one."""
        engine = BeamEngine(
            bundle.model,
            replace(self.limits, max_steps=bundle.catalog.layout.num_levels),
            observe_step=lambda step: self.observer.step(step.phase, requests=step.requests, rows=step.rows),
        )
        return self.join(bundle, EngineRunner(engine, bundle.name, self.observer))

    def join(self, bundle: Bundle, runner: EngineRunner) -> LiveBundle:
        """The bundle on an engine of the same model that runs already."""
        filters = FilterCache(
            bundle.catalog, bundle.constraint, max_bytes=self.filter_cache_bytes, observer=self.observer
        )
        return LiveBundle(bundle, runner, _info(bundle, self.limits), filters)

    def tell(self, live: LiveBundle) -> None:
        """Let the observer know that it is live."""
        info = live.info
        self.observer.bundle(info.name, info.version, info.score_space.value)
        self.observer.catalog(info.name, info.catalog_version, info.catalog_items)


def open_registry(directories: Sequence[Path], default: str, launch: Launch) -> Registry:
    """Load bundles, check that the engine's limits carry them, and start an engine for each.

    default: name of the bundle asked when a request names none; empty for the first directory's.
    Raises SetupError before any engine is started.
    """
    if not directories:
        raise BundleError("bundles: none given; name at least one bundle directory")
    bundles: dict[str, Bundle] = {}
    for directory in directories:
        bundle = launch.load(directory)
        if bundle.name in bundles:
            raise BundleError(f"{directory}: another bundle is called {bundle.name!r}; rename one")
        bundles[bundle.name] = bundle
    if default and default not in bundles:
        raise BundleError(f"default_bundle: {default!r} is none of {', '.join(bundles)}; correct it")
    ordered = sorted(bundles.values(), key=lambda bundle: bundle.name != default) if default else bundles.values()
    registry = Registry([launch.start(bundle) for bundle in ordered])
    for live in registry:
        launch.observer.engine_health(live.info.name, healthy=True)
        launch.tell(live)
    return registry


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


def _info(bundle: Bundle, limits: EngineLimits) -> BundleInfo:
    search = bundle.file.search
    return BundleInfo(
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
        attributes=tuple((name, column.kind) for name, column in bundle.catalog.attributes.items()),
    )
