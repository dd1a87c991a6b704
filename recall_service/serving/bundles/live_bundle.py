"""A bundle as it is served: with its engine, and with what is kept for it alone."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from item_catalog.filtering.filters import Filter
from recall_service.engine.request import BeamRequest, Priority
from recall_service.errors import EngineFailure, Overloaded, RecallError, SetupError
from recall_service.serving.bundles.bundle import Bundle
from recall_service.serving.engine_runner import EngineRunner
from recall_service.serving.filter_cache import FilterCache
from recall_service.serving.query import BundleInfo

_MAX_WARM_FILTERS = 1_000  # a catalogue that changes faster than they are worked out would only collect more


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LiveBundle:
    """A bundle, the engine that searches it, what filters leave of it, and what callers may know of it.

    Nothing but requests and the registry holds on to one, so that a catalogue is freed with its last request.
    """

    bundle: Bundle
    runner: EngineRunner
    info: BundleInfo
    filters: FilterCache

    def sample_search(self, beam_width: int) -> BeamRequest:
        """A search after the longest history prompt."""
        trie = self.bundle.catalog.trie
        leaves = np.arange(self.bundle.file.prompt.max_history) % trie.num_leaves
        return BeamRequest(
            prompt=self.bundle.template.build(trie.leaf_sids(leaves)),
            beam_width=beam_width,
            constraint=self.bundle.constraint,
            score_space=self.info.score_space,
        )

    async def warm_up(self) -> None:
        """Search once with the widest beam after the longest history prompt, so that no caller pays for first times.

        A GPU's engine also makes ready the steps of any number of requests of the default width. An engine that serves
        already takes it in however full it is, ahead of all others: do one at a time.
        Raises SetupError when the search fails, and NotReady when the engine is of no use.
        """
        widest = replace(self.sample_search(self.info.max_beam_width), priority=Priority.HIGH)
        try:
            await self.runner.search(widest, past_gate=True)
            await self.runner.prepare(replace(widest, beam_width=self.info.default_beam_width))
        except (EngineFailure, Overloaded) as error:
            raise SetupError(f"bundle {self.info.name}: its first search failed: {error}") from error

    async def warm_filters(self, wanted: Sequence[Filter]) -> None:
        """Work out filters, the hottest first, as far as can be: the others are when somebody asks."""
        with suppress(RecallError):
            await self.filters.warm(wanted[:_MAX_WARM_FILTERS])
