"""From a query to an answer: defaults, cache, modes, and what an observer hears of them."""

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from recall_service.engine.engine import BeamEngine
from recall_service.engine.request import BeamRequest, ScoreSpace, SearchMode
from recall_service.errors import (
    HistoryEmpty,
    InvalidRequest,
    UnknownVersion,
)
from recall_service.serving.query import CacheMode, ServedFrom, ShortReason
from tests.serving.bundles import LIMITS, VOCAB_SIZE, small_rows, write_bundle
from tests.serving.cache_fakes import stored_part
from tests.serving.served import HISTORY, Served

OTHER_HISTORY = ("item-104", "item-117", "item-131")


async def test_an_answer_is_the_engines_search(served: Served) -> None:
    """Bundle, prompt, search and items, each done by hand."""
    answer = await served.recall(include_steps=True)
    bundle = served.live().bundle
    sids, item_ids = small_rows()
    prompt = bundle.template.build(np.array([sids[item_ids.index(item)] for item in HISTORY], np.int32))
    request = BeamRequest(prompt=prompt, beam_width=12, constraint=bundle.constraint, with_ranks=True)
    result = BeamEngine(bundle.model, dataclasses.replace(LIMITS, max_steps=3)).search([request])[0]

    items_of_sid = {tuple(sid): [] for sid in sids.tolist()}
    for item, sid in sorted(zip(item_ids, sids.tolist(), strict=True)):
        items_of_sid[tuple(sid)].append(item)
    assert result.leaves is not None
    expected = [
        (item, beam)
        for beam, sid in enumerate(bundle.catalog.trie.leaf_sids(result.leaves).tolist())
        for item in items_of_sid[tuple(sid)]
    ][:10]
    beams = [beam for _, beam in expected]
    assert list(answer.item_ids) == [item for item, _ in expected]
    np.testing.assert_array_equal(answer.scores, result.scores[beams].astype(np.float64))
    np.testing.assert_array_equal(answer.sids, bundle.catalog.trie.leaf_sids(result.leaves[beams]))
    np.testing.assert_array_equal(answer.step_log_probs, result.log_probs[beams])
    assert result.ranks is not None
    np.testing.assert_array_equal(answer.step_ranks, result.ranks[beams])
    assert answer.proven_count == sum(beam < result.proven_count for beam in beams)
    assert answer.rows_forwarded == result.rows_forwarded


async def test_zero_and_empty_mean_the_bundles_defaults(served: Served) -> None:
    answer = await served.recall()
    info = served.live().info
    assert (answer.beam_width, len(answer.item_ids)) == (12, 10)
    assert (answer.bundle, answer.bundle_version, answer.catalog_version) == (
        "tiny",
        info.version,
        info.catalog_version,
    )
    assert answer.score_space is ScoreSpace.VOCABULARY
    explicit = await served.recall(bundle="tiny", num_items=10, beam_width=12)
    assert explicit.served_from is ServedFrom.LOCAL_CACHE


@pytest.mark.parametrize("include_steps", [False, True], ids=["plain", "steps"])
async def test_a_cached_answer_is_the_engines(served: Served, include_steps: bool) -> None:
    computed = await served.recall(include_steps=include_steps)
    cached = await served.recall(include_steps=include_steps)
    assert (computed.served_from, cached.served_from) == (ServedFrom.ENGINE, ServedFrom.LOCAL_CACHE)
    assert stored_part(cached) == stored_part(computed)
    assert computed.rows_forwarded > 0
    assert cached.rows_forwarded == 0
    assert cached.timings.prefill_seconds == 0.0 < computed.timings.prefill_seconds


async def test_cache_modes(served: Served) -> None:
    """BYPASS neither reads nor writes, REFRESH writes, USE does both."""
    modes = [CacheMode.BYPASS, CacheMode.USE, CacheMode.USE, CacheMode.BYPASS, CacheMode.REFRESH, CacheMode.USE]
    served_from = [(await served.recall(cache_mode=mode)).served_from for mode in modes]
    engine, local = ServedFrom.ENGINE, ServedFrom.LOCAL_CACHE
    assert served_from == [engine, engine, local, engine, engine, local]
    refreshed = [
        (await served.recall(OTHER_HISTORY, bundle="other", cache_mode=mode)).served_from
        for mode in (CacheMode.REFRESH, CacheMode.USE)
    ]
    assert refreshed == [engine, local]


@pytest.mark.parametrize("bundle", ["tiny", "other"])
async def test_a_proven_answer_is_that_of_a_beam_wide_enough_for_everything(served: Served, bundle: str) -> None:
    """The width is the number of items unless it is given; the cache keeps the two modes apart."""
    history = HISTORY if bundle == "tiny" else OTHER_HISTORY
    proven = await served.recall(history, bundle=bundle, num_items=9, search_mode=SearchMode.PROVEN)
    assert (proven.proven_count, proven.beam_width, proven.rows_skipped) == (9, 9, 0)
    narrow = await served.recall(history, bundle=bundle, num_items=9, search_mode=SearchMode.PROVEN, beam_width=2)
    everything = await served.recall(history, bundle=bundle, num_items=64, beam_width=64)
    assert proven.item_ids == narrow.item_ids == everything.item_ids[:9]
    np.testing.assert_allclose(proven.scores, everything.scores[:9], atol=1e-5)

    same_width = await served.recall(history, bundle=bundle, num_items=9, beam_width=9)
    assert same_width.served_from is ServedFrom.ENGINE
    again = await served.recall(history, bundle=bundle, num_items=9, search_mode=SearchMode.PROVEN)
    assert again.served_from is ServedFrom.LOCAL_CACHE
    assert again.proven_count == 9


async def test_a_bundle_may_say_when_proving_ends(tmp_path: Path) -> None:
    served = Served(write_bundle(tmp_path / "thrifty", search={"proven_row_budget": 1}))
    beam = await served.recall(num_items=8, beam_width=8)
    proven = await served.recall(num_items=8, search_mode=SearchMode.PROVEN)
    assert proven.rows_forwarded == beam.rows_forwarded
    assert proven.item_ids == beam.item_ids
    served.registry.close()


async def test_rows_that_cannot_matter_are_skipped_and_counted(served: Served) -> None:
    few = await served.recall(num_items=2, beam_width=64, bundle="other")
    assert few.rows_skipped > 0
    assert served.observer.of("rows_skipped") == [("rows_skipped", "decode", few.rows_skipped)]
    many = await served.recall(num_items=64, beam_width=64, bundle="other")
    assert few.item_ids == many.item_ids[:2]
    assert few.rows_forwarded + few.rows_skipped == many.rows_forwarded
    cached = await served.recall(num_items=2, beam_width=64, bundle="other")
    assert (cached.served_from, cached.rows_skipped) == (ServedFrom.LOCAL_CACHE, 0)


async def test_steps_are_given_only_when_asked(served: Served) -> None:
    with_steps, without = await served.recall(include_steps=True), await served.recall()
    assert without.step_log_probs is without.step_ranks is None
    np.testing.assert_allclose(with_steps.step_log_probs.sum(1), with_steps.scores, atol=1e-5)
    assert (with_steps.step_ranks >= 1).all()
    assert with_steps.item_ids == without.item_ids


async def test_equal_questions_at_once_are_computed_once(served: Served) -> None:
    answers = await asyncio.gather(*(served.recall() for _ in range(8)))
    assert len({answer.item_ids for answer in answers}) == 1
    assert served.observer.calls.count(("cache_coalesced",)) == 7
    assert served.observer.of("step").count(("step", "prefill")) == 1


async def test_two_bundles_at_once(served: Served) -> None:
    """Each answers from its own model and catalogue, in its own score space."""
    names = ["tiny", "other"] * 6
    histories = [HISTORY if name == "tiny" else OTHER_HISTORY for name in names]
    answers = await asyncio.gather(
        *(
            served.recall(history, bundle=name, num_items=1 + place, cache_mode=CacheMode.BYPASS)
            for place, (name, history) in enumerate(zip(names, histories, strict=True))
        )
    )
    for place, (name, answer) in enumerate(zip(names, answers, strict=True)):
        live = served.live(name)
        assert (answer.bundle, answer.bundle_version) == (name, live.info.version)
        assert answer.catalog_version == live.info.catalog_version
        assert answer.score_space is live.info.score_space
        assert len(answer.item_ids) == 1 + place
        assert (live.bundle.catalog.find(answer.item_ids) >= 0).all()
        assert answer.item_ids == answers[-2 if name == "tiny" else -1].item_ids[: 1 + place]
    assert served.live("tiny").info.catalog_version != served.live("other").info.catalog_version


async def test_ready_tokens_ask_the_same_as_their_history(served: Served) -> None:
    prompt, _ = served.live().bundle.history_prompt(HISTORY)
    by_history, by_prompt = await served.recall(), await served.recall(None, prompt=tuple(prompt.tolist()))
    assert by_prompt.served_from is ServedFrom.ENGINE
    assert by_prompt.item_ids == by_history.item_ids


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ((258, VOCAB_SIZE), ["prompt.token_ids[1]"]),
        ((VOCAB_SIZE + 7, 258, 4_000_000_000), ["prompt.token_ids[0]", "prompt.token_ids[2]"]),
    ],
)
async def test_tokens_out_of_range(served: Served, prompt: tuple[int, ...], fields: list[str]) -> None:
    with pytest.raises(InvalidRequest, match=r"token ids are 0 to 279") as caught:
        await served.recall(None, prompt=prompt)
    assert [violation.field for violation in caught.value.violations] == fields
    assert str(prompt[-1]) in caught.value.violations[-1].description
    assert served.observer.verdicts == [("failed", "feed"), ("rejected", "invalid")]


@pytest.mark.parametrize("history", [(), ("gone", "gone-too")], ids=["none", "unknown"])
async def test_a_history_of_nothing_known(served: Served, history: tuple[str, ...]) -> None:
    with pytest.raises(HistoryEmpty, match=rf"none of the {len(history)} history items .* bundle tiny does not serve"):
        await served.recall(history)
    assert served.observer.verdicts == [("failed", "feed"), ("rejected", "invalid")]
    answer = await served.recall(history, bundle="other")
    assert answer.unknown_history_items == len(history)
    by_prompt = await served.recall(None, prompt=(258,), bundle="other")
    assert answer.item_ids == by_prompt.item_ids


async def test_unknown_items_are_counted(served: Served) -> None:
    answer = await served.recall(("gone", *HISTORY, "gone-too"))
    assert answer.unknown_history_items == 2
    assert answer.item_ids == (await served.recall()).item_ids
    assert served.observer.of("answered")[0] == ("answered", "feed", "ok", 10, answer.proven_count, 12, 2)


async def test_a_bundle_that_is_not_served(served: Served) -> None:
    with pytest.raises(UnknownVersion, match=r"bundle 'nobody' is not served here; served are tiny, other"):
        await served.recall(bundle="nobody")
    assert served.observer.verdicts == [("failed", "feed")]


async def test_what_an_observer_hears_of_an_answer(served: Served) -> None:
    answer = await served.recall()
    heard = served.observer
    assert sorted(call[1] for call in heard.of("stage")) == sorted(
        ["cache_get", "prompt", "map", "queue", "prefill", "decode", "select", "cache_put"]
    )
    assert heard.of("step") == [("step", "prefill"), ("step", "decode"), ("step", "decode")]
    assert heard.of("cache_request") == [("cache_request", "local", "miss")]
    assert heard.verdicts == [("answered", "feed", "ok", 10, answer.proven_count, 12, 0)]

    heard.calls.clear()
    await served.recall()
    assert heard.of("stage") == [("stage", "cache_get")]
    assert heard.of("step") == []
    assert heard.of("cache_request") == [("cache_request", "local", "hit")]
    assert heard.verdicts == [("answered", "feed", "cached", 10, answer.proven_count, 12, 0)]


async def test_an_observer_hears_how_much_of_a_prompt_was_cached(served: Served) -> None:
    """A page is 8 tokens, a prompt one token and three an item: of the grown history, two items are run."""
    await served.recall()
    grown = await served.recall((*HISTORY, "item-005"))
    assert served.observer.of("prefix_tokens") == [("prefix_tokens", 0, 10), ("prefix_tokens", 8, 5)]
    await served.recall()  # from the result cache: no prompt is searched
    assert len(served.observer.of("prefix_tokens")) == 2
    afresh = await served.recall((*HISTORY, "item-005"), cache_mode=CacheMode.BYPASS)
    assert afresh.item_ids == grown.item_ids


@pytest.mark.parametrize(
    ("beam_width", "num_items", "reason", "found"),
    [(64, 64, ShortReason.CATALOG_EXHAUSTED, 50), (1, 20, ShortReason.BEAM_TOO_NARROW, None)],
)
async def test_short_answers_say_why_and_are_not_kept(
    served: Served, beam_width: int, num_items: int, reason: ShortReason, found: int | None
) -> None:
    answer = await served.recall(beam_width=beam_width, num_items=num_items)
    assert answer.short_reason is reason
    assert len(answer.item_ids) == (found or len(answer.item_ids)) < num_items
    verdicts = served.observer.verdicts
    assert verdicts[0] == ("short", reason.value)
    assert verdicts[1][:4] == ("answered", "feed", "short", len(answer.item_ids))
    again = await served.recall(beam_width=beam_width, num_items=num_items)
    assert again.served_from is ServedFrom.ENGINE


async def test_bundles_tell_their_limits(served: Served) -> None:
    infos = served.pipeline.bundles()
    assert [info.name for info in infos] == ["tiny", "other"]
    assert (infos[0].default_beam_width, infos[0].max_beam_width) == (12, 64)
    assert (infos[0].default_num_items, infos[0].max_num_items) == (10, 64)
    assert (infos[0].catalog_items, infos[0].codebook_sizes) == (50, (4, 5, 6))
    assert infos[0].max_prompt_tokens == LIMITS.max_prompt_tokens
