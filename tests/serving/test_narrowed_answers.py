"""Filters and exclusions, from the call to the answer: every answer is what brute force leaves of the whole list."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from item_catalog.catalog import Catalog
from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn
from recall_service import client as asking
from recall_service.client import AsyncRecallClient, RecallClientError
from recall_service.engine.request import SearchMode
from recall_service.errors import DeadlineExpired, InvalidRequest, NotReady
from recall_service.serving import filter_cache, narrowing, pipeline
from recall_service.serving.query import CacheMode, RecallAnswer, ServedFrom, ShortReason
from tests.rpc.fake_backend import running, until
from tests.serving.bundles import small_rows
from tests.serving.cache_fakes import stored_part
from tests.serving.narrowed import items_left, random_filter, random_items
from tests.serving.served import HISTORY, Served

ALL = {"num_items": 64, "beam_width": 64}  # of 50 items on 40 SIDs
SHOES = Filter((IsIn("category", ("shoes",)),))
NOTHING = Filter((IsIn("category", ("a category that nothing has",)),))
_, ITEM_IDS = small_rows()


async def ranked(served: Served, history: tuple[str, ...] = HISTORY) -> dict[str, float]:
    """Every item with its score, best first."""
    answer = await served.recall(history, **ALL)
    assert set(answer.item_ids) == set(ITEM_IDS)
    return dict(zip(answer.item_ids, answer.scores.tolist(), strict=True))


def assert_is(answer: RecallAnswer, expected: list[str], scores: dict[str, float]) -> None:
    assert list(answer.item_ids) == expected
    np.testing.assert_allclose(answer.scores, [scores[item] for item in expected], atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
async def test_every_answer_equals_brute_force(served: Served, seed: int) -> None:
    """Asked twice over gRPC, so that the second answer of a complete one comes from the cache."""
    generator = random.Random(seed)
    scores = await ranked(served)
    async with running(served.pipeline) as service, AsyncRecallClient(service.address) as client:
        for _ in range(25):
            wanted = random_filter(generator) if generator.random() < 0.8 else None
            excluded, exclude_history = random_items(generator, 20), generator.random() < 0.5
            left = items_left(wanted, excluded, HISTORY if exclude_history else ())
            num_items = generator.choice((1, 5, 20, 64))
            expected = [item for item in scores if item in left][:num_items]
            for served_from in ("ENGINE", "LOCAL_CACHE" if len(expected) == num_items else "ENGINE"):
                result = await client.recall(
                    history=HISTORY,
                    where=[] if wanted is None else [_as_asked(predicate) for predicate in wanted.predicates],
                    exclude_item_ids=excluded,
                    exclude_history=exclude_history,
                    num_items=num_items,
                    beam_width=64,
                )
                assert [item.item_id for item in result.items] == expected
                found = [item.score for item in result.items]
                np.testing.assert_allclose(found, [scores[item] for item in expected], atol=1e-5)
                assert result.served_from == served_from
                assert result.proven_count == len(expected)  # nothing is pruned by so wide a beam
                assert result.unknown_excluded_items == len({*excluded} & {"gone", "gone-too"})
                is_part = len(left) < len(ITEM_IDS)
                reason = "FILTER_TOO_NARROW" if is_part else "CATALOG_EXHAUSTED"
                assert result.short_reason == ("" if len(expected) == num_items else reason)


def _as_asked(predicate: Any) -> Any:
    """A predicate in the client's words."""
    if isinstance(predicate, InRange):
        return asking.InRange(predicate.attribute, **predicate.bounds())
    return {IsIn: asking.IsIn, NotIn: asking.NotIn}[type(predicate)](predicate.attribute, predicate.values)


@pytest.mark.parametrize("seed", range(6))
async def test_a_proven_answer_is_the_true_top_of_what_is_left(served: Served, seed: int) -> None:
    generator = random.Random(seed)
    scores = await ranked(served)
    wanted, excluded = random_filter(generator), random_items(generator, 8)
    left = items_left(wanted, excluded, HISTORY)
    answer = await served.recall(
        filter=wanted, exclude_item_ids=excluded, exclude_history=True, num_items=6, search_mode=SearchMode.PROVEN
    )
    assert_is(answer, [item for item in scores if item in left][:6], scores)
    assert answer.proven_count == len(answer.item_ids)


async def test_no_beam_is_spent_on_what_does_not_pass(served: Served) -> None:
    """The last items of the whole list, of which three beams of the whole catalogue find none."""
    last = list(await ranked(served))[-13:]
    others = tuple(item for item in ITEM_IDS if item not in last)
    assert not {*(await served.recall(beam_width=3, num_items=3)).item_ids} & {*last}
    answer = await served.recall(beam_width=3, num_items=3, exclude_item_ids=others)
    assert len(answer.item_ids) == 3
    assert set(answer.item_ids) <= set(last)


async def test_scores_over_the_catalogue_are_over_what_is_left_of_it(served: Served) -> None:
    """Bundle "other" is of that score space; its items are numbered from 100 on."""
    history = ("item-104", "item-117")
    for fields in ({"filter": SHOES}, {"exclude_item_ids": history}, {"filter": SHOES, "exclude_history": True}):
        answer = await served.recall(history, bundle="other", **ALL, **fields)
        first_of_sid = np.unique(answer.sids, axis=0, return_index=True)[1]
        assert np.exp(answer.scores[first_of_sid]).sum() == pytest.approx(1, abs=1e-4)
        assert 0 < len(answer.item_ids) < 50


@pytest.mark.parametrize("num_dropped", range(1, 6))
async def test_of_a_shared_sid_those_that_are_excluded_go_alone(served: Served, num_dropped: int) -> None:
    """The SID with the most items has five; it is searched as long as one of them is left."""
    catalog = served.live().bundle.catalog
    leaf = int(np.argmax(np.diff(catalog.item_offsets)))
    sharing = catalog.item_ids.take(catalog.items_of_leaves([leaf]).positions)
    assert len(sharing) == 5
    scores = await ranked(served)
    answer = await served.recall(exclude_item_ids=tuple(sharing[:num_dropped]), **ALL)
    assert_is(answer, [item for item in scores if item not in sharing[:num_dropped]], scores)
    sid = tuple(catalog.trie.leaf_sids(np.array([leaf]))[0].tolist())
    assert (sid in set(map(tuple, answer.sids.tolist()))) == (num_dropped < 5)


async def test_the_whole_history_is_excluded(served: Served) -> None:
    """What is older than the six items that the prompt holds, too; what is unknown in it counts as history."""
    history = (*ITEM_IDS[:20], "gone")
    answer = await served.recall(history, exclude_history=True, **ALL)
    assert set(answer.item_ids) == set(ITEM_IDS[20:])
    assert answer.short_reason is ShortReason.FILTER_TOO_NARROW
    assert (answer.unknown_history_items, answer.unknown_excluded_items) == (1, 0)


async def test_unknown_exclusions_are_ignored_and_counted(served: Served) -> None:
    excluded = ("gone", "gone-too", "gone")
    for _ in range(2):  # once cached
        answer = await served.recall(exclude_item_ids=excluded)
        assert answer.unknown_excluded_items == 2
        assert answer.item_ids == (await served.recall()).item_ids
    assert answer.served_from is ServedFrom.LOCAL_CACHE
    assert served.observer.of("unknown_excluded") == [("unknown_excluded", 2)] * 2
    whole = await served.recall(exclude_item_ids=excluded, **ALL)
    assert whole.short_reason is ShortReason.CATALOG_EXHAUSTED


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": NOTHING},
        {"exclude_item_ids": tuple(ITEM_IDS)},
        {"filter": SHOES, "exclude_item_ids": tuple(items_left(SHOES))},
    ],
    ids=["no item passes", "all are excluded", "all that pass are excluded"],
)
@pytest.mark.parametrize("include_steps", [False, True], ids=["plain", "steps"])
async def test_where_nothing_is_left_nothing_is_searched(
    served: Served, fields: dict[str, Any], include_steps: bool
) -> None:
    answer = await served.recall(("gone", *HISTORY), **fields, include_steps=include_steps)
    assert (answer.item_ids, answer.short_reason) == ((), ShortReason.FILTER_TOO_NARROW)
    assert answer.unknown_history_items == 1
    assert answer.scores.shape == (0,)
    assert answer.sids.shape == (0, 3)
    assert [steps is not None for steps in (answer.step_log_probs, answer.step_ranks)] == [include_steps] * 2
    assert (answer.items_wire, answer.rows_forwarded) == (b"", 0)
    assert served.observer.of("step") == []
    assert [call[:2] for call in served.observer.of("short", "answered")] == [
        ("short", "filter_too_narrow"),
        ("answered", "feed"),
    ]


async def test_what_is_left_and_pruned_is_short_of_beams(served: Served) -> None:
    answer = await served.recall(filter=Filter((NotIn("category", ("hats",)),)), beam_width=1, num_items=20)
    assert answer.short_reason is ShortReason.BEAM_TOO_NARROW


async def test_steps_are_those_of_the_items_that_are_left(served: Served) -> None:
    whole = await served.recall(include_steps=True, **ALL)
    part = await served.recall(include_steps=True, filter=SHOES, exclude_item_ids=ITEM_IDS[:4], **ALL)
    places = [whole.item_ids.index(item) for item in part.item_ids]
    assert places
    np.testing.assert_allclose(part.step_log_probs, whole.step_log_probs[places], atol=1e-5)
    np.testing.assert_array_equal(part.step_ranks, whole.step_ranks[places])


async def test_a_question_is_cached_by_what_it_means(served: Served) -> None:
    one = {"filter": Filter((IsIn("category", ("shoes", "hats")), InRange("price", at_most=60)))}
    other = {"filter": Filter((InRange("price", at_most=60), IsIn("category", ("hats", "shoes", "hats"))))}
    first = await served.recall(num_items=3, exclude_item_ids=("item-002", "gone"), **one)
    again = await served.recall(num_items=3, exclude_item_ids=("gone", "item-002", "gone"), **other)
    assert (first.served_from, again.served_from) == (ServedFrom.ENGINE, ServedFrom.LOCAL_CACHE)
    assert stored_part(again) == stored_part(first)
    for fields in ({}, one, {"exclude_item_ids": ("item-002", "gone")}, {"exclude_history": True, **one}):
        different = await served.recall(num_items=3, **fields)
        assert different.served_from is ServedFrom.ENGINE


async def test_equal_questions_at_once_are_narrowed_once(served: Served) -> None:
    answers = await asyncio.gather(*(served.recall(num_items=3, filter=SHOES) for _ in range(8)))
    assert len({answer.item_ids for answer in answers}) == 1
    assert served.observer.of("filter_resolved") == [("filter_resolved", "computed")]
    assert served.observer.of("stage").count(("stage", "filter")) == 1
    await served.recall(num_items=4, filter=SHOES)
    await served.recall(num_items=4, exclude_history=True)
    assert served.observer.of("filter_resolved") == [("filter_resolved", "computed"), ("filter_resolved", "hit")]
    assert served.observer.of("stage").count(("stage", "filter")) == 3


async def test_a_filter_is_checked_against_what_is_pinned(served: Served) -> None:
    """What was validated may have been swapped since: the path is then the same, in the caller's own words."""
    wanted = Filter((IsIn("in_stock", (True,)), IsIn("brand", ("acme",))))
    with pytest.raises(InvalidRequest, match=r"'brand' is unknown; the catalogue has: category, in_stock") as caught:
        await served.recall(filter=wanted)
    assert [violation.field for violation in caught.value.violations] == ["filter.predicates[1].attribute"]
    assert served.observer.verdicts == [("failed", "feed"), ("rejected", "invalid")]


async def test_a_filter_that_is_wrong_is_told_over_the_wire(served: Served) -> None:
    async with running(served.pipeline) as service, AsyncRecallClient(service.address) as client:
        with pytest.raises(RecallClientError) as caught:
            await client.recall(history=HISTORY, where=[asking.IsIn("brand", []), asking.InRange("category", above=1)])
        info = await client.serving_info()
    assert [violation.field for violation in caught.value.violations] == [
        "filter.predicates[0].in.values",
        "filter.predicates[0].attribute",
        "filter.predicates[1].range",
    ]
    told = {attribute.name for attribute in info.bundles[0].attributes}
    assert told == {"category", "in_stock", "price", "published"}


async def test_who_is_refused_costs_no_look_at_the_catalogue(served: Served) -> None:
    served.live().runner.gate.refusal = "the engine is stuck"
    with pytest.raises(NotReady, match="stuck"):
        await served.recall(filter=SHOES)
    assert served.live().filters.recent() == []
    assert served.observer.of("filter_resolved") == []


class Held:
    """Stands before a function, and lets nobody pass until it is opened."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.opened = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *arguments: Any) -> Any:
        self.threads.append(threading.current_thread())
        assert self.opened.wait(10)
        return self._function(*arguments)


async def test_a_deadline_that_passes_while_a_filter_is_looked_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another question of the same filter, which has more time, is answered."""
    held = Held(filter_cache.live_set)
    monkeypatch.setattr(filter_cache, "live_set", held)
    patient = asyncio.create_task(served.recall(num_items=4, filter=SHOES))
    with pytest.raises(DeadlineExpired, match="queue"):
        await served.recall(num_items=3, filter=SHOES, deadline=time.monotonic() + 0.05)
    assert served.observer.of("deadline_expired") == [("deadline_expired", "queue")]
    held.opened.set()
    assert set((await patient).item_ids) <= items_left(SHOES)
    assert len(held.threads) == 1


async def test_whoever_leaves_while_a_filter_is_looked_up_leaves_the_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(filter_cache.live_set)
    monkeypatch.setattr(filter_cache, "live_set", held)
    leading, following = (asyncio.create_task(served.recall(num_items=3, filter=SHOES)) for _ in range(2))
    await until(lambda: len(held.threads) == 1)
    leading.cancel()
    await asyncio.wait([leading])
    held.opened.set()
    assert len((await following).item_ids) == 3
    assert len(held.threads) == 1


@pytest.mark.parametrize(("num_excluded", "is_beside"), [(256, False), (257, True)])
async def test_many_exclusions_are_looked_up_beside_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch, num_excluded: int, is_beside: bool
) -> None:
    held = Held(narrowing.dead_set)
    held.opened.set()
    monkeypatch.setattr(narrowing, "dead_set", held)
    excluded = ("item-002", *(f"gone-{number}" for number in range(num_excluded - 1)))
    answer = await served.recall(exclude_item_ids=excluded, cache_mode=CacheMode.BYPASS, **ALL)
    assert set(answer.item_ids) == set(ITEM_IDS) - {"item-002"}
    assert answer.unknown_excluded_items == num_excluded - 1
    assert (held.threads != [threading.current_thread()]) == is_beside


@pytest.mark.parametrize(("num_items", "is_beside"), [(256, False), (257, True)])
async def test_a_long_history_is_looked_up_beside_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch, num_items: int, is_beside: bool
) -> None:
    held = Held(pipeline._prompt)
    held.opened.set()
    monkeypatch.setattr(pipeline, "_prompt", held)
    history = (*(f"gone-{number}" for number in range(num_items - len(HISTORY))), *HISTORY)
    answer = await served.recall(history)
    assert answer.unknown_history_items == num_items - len(HISTORY)
    assert answer.item_ids == (await served.recall()).item_ids
    assert (held.threads[0] is not threading.current_thread()) == is_beside


def test_the_catalogue_of_these_tests_has_what_they_need(served: Served) -> None:
    catalog: Catalog = served.live().bundle.catalog
    assert [name for name, column in catalog.attributes.items() if column.missing is not None] == ["category", "price"]
    assert np.diff(catalog.item_offsets).max() == 5
