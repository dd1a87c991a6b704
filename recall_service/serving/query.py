"""The service's own words for a question and its answer; `rpc` translates them to and from the wire."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.attributes import AttributeKind
from item_catalog.filtering.filters import Filter
from recall_service.engine.request import Priority, ScoreSpace, SearchMode


class CacheMode(StrEnum):
    """How a question uses the result cache."""

    USE = "use"  # answer from it, store into it
    REFRESH = "refresh"  # compute, and store over what it holds
    BYPASS = "bypass"  # neither look nor store


class ServedFrom(StrEnum):
    """Who answered."""

    ENGINE = "engine"
    LOCAL_CACHE = "local"
    SHARED_CACHE = "redis"


class ShortReason(StrEnum):
    """Why there are fewer items than were asked for."""

    CATALOG_EXHAUSTED = "catalog_exhausted"
    BEAM_TOO_NARROW = "beam_too_narrow"
    FILTER_TOO_NARROW = "filter_too_narrow"


class RecallQuery(NamedTuple):
    """Which items next? Exactly one of `history` (item ids, oldest first) and `prompt` (token ids) is given.

    Zero for `num_items` or `beam_width`, and an empty `bundle`, mean the default; a PROVEN search is by default
    `num_items` wide.
    filter: what items must satisfy; None: nothing. exclude_item_ids: what is left out; exclude_history: all of the
    history, too.
    `deadline` is in seconds of `time.monotonic()`.
    """

    history: tuple[str, ...] | None = None
    prompt: tuple[int, ...] | None = None
    bundle: str = ""
    num_items: int = 0
    beam_width: int = 0
    filter: Filter | None = None
    exclude_item_ids: tuple[str, ...] = ()
    exclude_history: bool = False
    search_mode: SearchMode = SearchMode.BEAM
    cache_mode: CacheMode = CacheMode.USE
    include_steps: bool = False
    priority: Priority = Priority.NORMAL
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of a search went, in seconds. For a cached answer all are 0."""

    queue_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecallAnswer:
    """Items, best first and unique, as arrays of one length n.

    scores: float64 [n], sum of log-probabilities in `score_space`.
    sids: int32 [n, levels].
    step_log_probs float32 [n, levels] and step_ranks int32 [n, levels]: only when the question asked for steps.
    items_wire: all of the above as `encode_items` makes it, shared by everyone who gets this answer.
    proven_count: the first so many are the model's true top of the whole catalogue, or of what filter and exclusions
        leave of it.
    unknown_excluded_items: how many different ones of `exclude_item_ids` the catalogue does not know.
    """

    item_ids: tuple[str, ...]
    scores: NDArray[np.float64]
    sids: NDArray[np.int32]
    step_log_probs: NDArray[np.float32] | None
    step_ranks: NDArray[np.int32] | None
    items_wire: bytes
    short_reason: ShortReason | None
    proven_count: int
    served_from: ServedFrom
    bundle: str
    bundle_version: str
    catalog_version: str
    score_space: ScoreSpace
    beam_width: int
    unknown_history_items: int
    unknown_excluded_items: int
    rows_forwarded: int
    rows_skipped: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class BundleInfo:
    """What callers may know of one live bundle."""

    name: str
    version: str
    catalog_version: str
    catalog_items: int
    codebook_sizes: tuple[int, ...]
    score_space: ScoreSpace
    default_beam_width: int
    max_beam_width: int
    default_num_items: int
    max_num_items: int
    max_prompt_tokens: int
    max_history: int
    attributes: tuple[tuple[str, AttributeKind], ...] = ()
