"""One question to replay, what was answered when it was first asked, and what the user took next.

Knows the contract's messages; not where the question came from, nor whom it will be put to.
"""

from dataclasses import dataclass

from recall_service.stubs.recall.v1 import recall_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Items, best first, and their scores (as many), with what else two answers are compared by.

    proven_count: the first so many items are the model's true top of the whole catalogue.
    short_reason: why there are fewer items than were asked for; empty when there are as many.
    served_from: ENGINE, LOCAL_CACHE or SHARED_CACHE. Both are named as in the contract, without their prefix.
    """

    item_ids: tuple[str, ...]
    scores: tuple[float, ...]
    proven_count: int
    short_reason: str
    served_from: str
    bundle_version: str
    catalog_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question of a source.

    index: its place among all questions of the source, from 0; whatever is said of it later names it by that.
    arrival_seconds: when it arrived, from the first of the source on.
    deadline_seconds: how long the caller would wait, counted from the arrival; None when it did not say.
    expected: what the log says was answered; None where the source says nothing, or the call failed.
    next_items: what the user took next, soonest first; empty where the source does not say.
    """

    index: int
    request: recall_pb2.RecallRequest
    arrival_seconds: float
    deadline_seconds: float | None = None
    expected: Answered | None = None
    next_items: tuple[str, ...] = ()
