"""A filter and exclusions inside the search: it is the search of a catalogue that never had the other items."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.filtering.exclusions import dead_set
from item_catalog.filtering.filters import Filter, InRange, IsIn
from item_catalog.filtering.live_sets import live_set
from item_catalog.sid import SidLayout
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.engine import BeamEngine
from recall_service.engine.fixed_search import has_fixed_shapes
from recall_service.engine.kernels.fixed import REFERENCE_KERNELS
from recall_service.engine.request import BeamResult, SearchMode
from tests.engine.driving import SMALL, SPACES, ask, assert_all_free
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import random_level_tokens

VOCAB = 32
SIZES = (5, 4, 6)
CHEAP_AND_RED = Filter((IsIn("color", ("red", "pink")), InRange("price", at_most=5)))


class Rows(NamedTuple):
    """Items as a list would have them: several on one SID, of which some pass the filter."""

    ids: NDArray[np.int64]
    sids: NDArray[np.int64]
    colors: NDArray[np.str_]
    prices: NDArray[np.float64]

    @classmethod
    def random(cls, rng: np.random.Generator, count: int) -> "Rows":
        return cls(
            ids=rng.permutation(10 * count)[:count],
            sids=np.stack([rng.integers(0, size, count) for size in SIZES], axis=1),
            colors=rng.choice(["red", "green", "pink"], count),
            prices=rng.integers(0, 10, count).astype(float),
        )

    def that_pass(self) -> NDArray[np.bool_]:
        return (self.colors != "green") & (self.prices <= 5)

    def of(self, wanted: NDArray[np.bool_]) -> "Rows":
        return Rows(*(column[wanted] for column in self))

    def catalog(self) -> Catalog:
        attributes = {"color": self.colors, "price": self.prices}
        return build_catalog(SidLayout(SIZES), self.sids, self.ids, attributes)


@settings(derandomize=True, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 90),
    share_excluded=st.sampled_from([0.05, 0.5, 0.97]),
    is_filtered=st.booleans(),
    width=st.sampled_from([1, 3, 8, 64]),
    space=st.sampled_from(SPACES),
    mode=st.sampled_from(SearchMode),
    is_fixed=st.booleans(),
)
def test_equals_a_search_of_the_rows_that_remain(
    seed: int,
    count: int,
    share_excluded: float,
    is_filtered: bool,
    width: int,
    space: Any,
    mode: SearchMode,
    is_fixed: bool,
) -> None:
    """Items, scores, ranks, order and certificate, in every score space, of every search."""
    rng = np.random.default_rng(seed)
    rows = Rows.random(rng, count)
    excluded = rng.random(count) < share_excluded
    remain = ~excluded & (rows.that_pass() if is_filtered else True)
    level_tokens = random_level_tokens(rng, SIZES, VOCAB)
    catalog = rows.catalog()
    constraint = TrieConstraint(catalog.trie, level_tokens)
    live = live_set(catalog, CHEAP_AND_RED) if is_filtered else None
    dead = dead_set(catalog, catalog.find(rows.ids[excluded].astype(str).tolist()), live)
    narrowed = (constraint if live is None else constraint.keeping(live.nodes)).without(dead.nodes)

    engine = BeamEngine(
        PathDecoder(VOCAB, cache(random_path_logits(VOCAB))),
        SMALL,
        fixed_kernels=REFERENCE_KERNELS if is_fixed else None,
    )
    fields: dict[str, Any] = {"beam_width": width, "score_space": space, "search_mode": mode, "with_ranks": True}
    (found,) = engine.search([ask(None, **fields, constraint_of=narrowed)])
    may_answer = np.ones(count, bool) if live is None else live.items
    may_answer = may_answer & ~np.isin(np.arange(count), dead.items)
    if not remain.any():
        assert (len(found.scores), found.bound) == (0, -np.inf)
        return
    left = rows.of(remain).catalog()
    (expected,) = engine.search([ask(None, **fields, constraint_of=TrieConstraint(left.trie, level_tokens))])
    assert items_of(catalog, found, may_answer) == items_of(left, expected, np.ones(left.num_items, bool))
    for name in ("tokens", "scores", "log_probs", "ranks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert (found.bound, found.proven_count) == (expected.bound, expected.proven_count)
    assert_all_free(engine)


def items_of(catalog: Catalog, result: BeamResult, may_answer: NDArray[np.bool_]) -> list[str]:
    positions, _ = catalog.items_of_leaves(result.leaves)
    return catalog.item_ids.take(positions[may_answer[positions]])


def test_a_filter_alone_keeps_fixed_shapes_and_exclusions_do_not() -> None:
    """What one request excludes is no shape that others share; the kernels know of filters alone."""
    catalog = Rows.random(np.random.default_rng(3), 40).catalog()
    live = live_set(catalog, CHEAP_AND_RED)
    constraint = TrieConstraint(catalog.trie, random_level_tokens(np.random.default_rng(3), SIZES, VOCAB))
    filtered = constraint.keeping(live.nodes)
    dead = dead_set(catalog, np.flatnonzero(live.items)[:1], live)
    assert has_fixed_shapes(ask(None, constraint_of=filtered))
    assert not has_fixed_shapes(ask(None, constraint_of=constraint.without(dead_set(catalog, np.arange(40)).nodes)))
    assert not has_fixed_shapes(ask(None, constraint_of=filtered.without([np.array([0]), *dead.nodes[1:]])))


def test_requests_of_one_batch_see_their_own_exclusions_alone() -> None:
    """Side by side in one engine: nothing excluded, the best item excluded, the best two."""
    rows = Rows.random(np.random.default_rng(4), 60)
    catalog = rows.catalog()
    constraint = TrieConstraint(catalog.trie, random_level_tokens(np.random.default_rng(4), SIZES, VOCAB))
    engine = BeamEngine(PathDecoder(VOCAB, cache(random_path_logits(VOCAB))), SMALL, fixed_kernels=REFERENCE_KERNELS)
    fields: dict[str, Any] = {"beam_width": 60, "search_mode": SearchMode.PROVEN}
    (everything,) = engine.search([ask(None, **fields, constraint_of=constraint)])
    requests = []
    for num_excluded in range(3):
        positions, _ = catalog.items_of_leaves(everything.leaves[:num_excluded])
        narrowed = constraint.without(dead_set(catalog, positions).nodes)
        requests.append(ask(None, **fields, constraint_of=narrowed))
    found = engine.search(requests)
    assert [result.leaves.tolist() for result in found] == [everything.leaves[count:].tolist() for count in range(3)]
    assert_all_free(engine)
