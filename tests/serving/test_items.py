"""Beams to items: order, cuts inside a leaf, certificates, and why an answer is short."""

import numpy as np
import pytest

from item_catalog.building.builder import build_catalog
from item_catalog.filtering.live_sets import LiveSet
from item_catalog.sid import SidLayout
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.request import BeamResult
from recall_service.serving.items import items_of_beams
from recall_service.serving.narrowing import Narrowing
from recall_service.serving.query import ShortReason

# Leaf 0 holds one item, leaf 1 three, leaf 2 two, leaf 3 one; on one SID in ascending order of ids.
CATALOG = build_catalog(
    SidLayout((2, 2)),
    [[0, 0], [0, 1], [0, 1], [0, 1], [1, 0], [1, 0], [1, 1]],
    ["solo", "c", "a", "b", "y", "x", "last"],
)

CONSTRAINT = TrieConstraint(CATALOG.trie, [np.arange(2), np.arange(2, 4)])


def narrowing(excluded: str = "", live: str | None = None) -> Narrowing:
    """The catalogue less the items of `excluded`, and of `live` alone if that is given; ids with spaces."""
    positions = np.sort(CATALOG.find(excluded.split()))
    kept = None if live is None else np.isin(np.arange(CATALOG.num_items), CATALOG.find(live.split()))
    num_left = (CATALOG.num_items if kept is None else int(kept.sum())) - len(positions)
    passing = None if kept is None else LiveSet(kept, (), int(kept.sum()), ())
    return Narrowing(CONSTRAINT, num_left, CATALOG.num_items, 0, passing, positions)


def beams(*leaves: int, proven: int = 0, bound: float = -1.0) -> BeamResult:
    count = len(leaves)
    return BeamResult(
        tokens=np.zeros((count, 2), np.int64),
        lengths=np.full(count, 2, np.int64),
        scores=-np.arange(count, dtype=np.float32),
        log_probs=np.zeros((count, 2), np.float32),
        ranks=None,
        leaves=np.array(leaves, np.int64),
        bound=bound,
        proven_count=proven,
        rows_forwarded=1,
        rows_skipped=0,
        cached_prompt_tokens=0,
        queue_seconds=0.0,
        prefill_seconds=0.0,
        decode_seconds=0.0,
        submitted=0.0,
        steps=(),
    )


def test_items_stand_in_the_order_of_beams_then_of_ids() -> None:
    found = items_of_beams(beams(2, 1, 0), CATALOG, 6)
    assert found.item_ids == ("x", "y", "a", "b", "c", "solo")
    assert found.beams.tolist() == [0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize("num_items", range(1, 6))
def test_a_cut_inside_a_leaf_keeps_its_first_items(num_items: int) -> None:
    found = items_of_beams(beams(0, 1, 2), CATALOG, num_items)
    assert found.item_ids == ("solo", "a", "b", "c", "x")[:num_items]
    assert found.beams.tolist() == [0, 1, 1, 1, 2][:num_items]
    assert found.short_reason is None


@pytest.mark.parametrize(
    ("proven", "num_items", "expected"), [(0, 6, 0), (1, 6, 3), (2, 6, 4), (2, 4, 4), (2, 2, 2), (3, 5, 5)]
)
def test_the_certificate_counts_items(proven: int, num_items: int, expected: int) -> None:
    """Leaves of 3, 1 and 2 items, the first `proven` of them proven."""
    assert items_of_beams(beams(1, 0, 2, proven=proven), CATALOG, num_items).proven_count == expected


@pytest.mark.parametrize(
    ("result", "num_items", "reason"),
    [
        (beams(1, 0), 5, ShortReason.BEAM_TOO_NARROW),
        (beams(1, 0), 4, None),
        (beams(0, 1, 2, 3, bound=-np.inf), 8, ShortReason.CATALOG_EXHAUSTED),
        (beams(0, 1, 2, 3, bound=-np.inf), 7, None),
        (beams(bound=-np.inf), 1, ShortReason.CATALOG_EXHAUSTED),
    ],
    ids=["pruned", "pruned but enough", "all there is", "all that was asked", "nothing reachable"],
)
def test_why_an_answer_is_short(result: BeamResult, num_items: int, reason: ShortReason | None) -> None:
    found = items_of_beams(result, CATALOG, num_items)
    assert found.short_reason is reason
    assert len(found.item_ids) == min(num_items, sum((1, 3, 2, 1)[leaf] for leaf in result.leaves))


@pytest.mark.parametrize(
    ("left", "num_items", "expected"),
    [
        (narrowing("a x"), 9, ("b", "c", "y", "last")),
        (narrowing("a x"), 3, ("b", "c", "y")),
        (narrowing(live="c x y last"), 9, ("c", "x", "y", "last")),
        (narrowing("x last", live="c x y last"), 9, ("c", "y")),
        (narrowing(), 9, ("a", "b", "c", "x", "y", "last")),
    ],
    ids=["excluded", "excluded, cut", "filtered", "both", "nothing"],
)
def test_of_an_sid_only_what_is_left_counts(left: Narrowing, num_items: int, expected: tuple[str, ...]) -> None:
    found = items_of_beams(beams(1, 2, 3, proven=2), CATALOG, num_items, left)
    assert found.item_ids == expected
    sid_of = {"a": 0, "b": 0, "c": 0, "x": 1, "y": 1, "last": 2}
    assert found.beams.tolist() == [sid_of[item] for item in expected]
    assert found.proven_count == sum(item != "last" for item in expected)


@pytest.mark.parametrize(
    ("left", "bound", "reason"),
    [
        (narrowing("a"), -np.inf, ShortReason.FILTER_TOO_NARROW),
        (narrowing("a"), -1.0, ShortReason.BEAM_TOO_NARROW),
        (narrowing(), -np.inf, ShortReason.CATALOG_EXHAUSTED),
        (None, -np.inf, ShortReason.CATALOG_EXHAUSTED),
    ],
    ids=["less", "less, and pruned", "nothing left out", "nothing asked to"],
)
def test_a_filter_is_too_narrow_only_where_it_leaves_something_out(
    left: Narrowing | None, bound: float, reason: ShortReason
) -> None:
    assert items_of_beams(beams(0, 1, 2, 3, bound=bound), CATALOG, 9, left).short_reason is reason
