"""Messages to questions, answers to messages."""

import dataclasses
from enum import Enum

import pytest

from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn
from recall_service.engine.request import ScoreSpace, SearchMode
from recall_service.rpc.convert import encode_response, to_bundle_message, to_query
from recall_service.serving.query import CacheMode, RecallAnswer, RecallQuery, ServedFrom, ShortReason
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import MAIN, by_history, by_prompt, make_answer

FILTER = recall_pb2.Filter(
    predicates=[
        {"attribute": "category", "in": {"values": [{"text": "shoes"}, {"text": ""}]}},
        {"attribute": "in_stock", "not_in": {"values": [{"boolean": False}]}},
        {"attribute": "price", "range": {"above": {"integer": 1}, "at_most": {"number": 30.5}}},
        {"attribute": "published", "range": {"at_least": {"integer": -5}, "below": {"integer": 7}}},
    ]
)


def read_response(answer: RecallAnswer) -> recall_pb2.RecallResponse:
    wire = encode_response(answer, request_id="r", attribution_token="t", total_seconds=0.004)
    return recall_pb2.RecallResponse.FromString(wire)


def test_a_request_by_history_becomes_a_question_field_by_field() -> None:
    request = by_history(
        "x",
        "y",
        bundle="main",
        num_items=7,
        beam_width=9,
        filter=FILTER,
        exclude_item_ids=["y", "z"],
        exclude_history=True,
        cache_mode="CACHE_MODE_REFRESH",
        include_steps=True,
        search_mode="SEARCH_MODE_PROVEN",
    )
    assert to_query(request, ("x", "y"), 12.5) == RecallQuery(
        history=("x", "y"),
        bundle="main",
        num_items=7,
        beam_width=9,
        filter=Filter(
            (
                IsIn("category", ("shoes", "")),
                NotIn("in_stock", (False,)),
                InRange("price", above=1, at_most=30.5),
                InRange("published", at_least=-5, below=7),
            )
        ),
        exclude_item_ids=("y", "z"),
        exclude_history=True,
        search_mode=SearchMode.PROVEN,
        cache_mode=CacheMode.REFRESH,
        include_steps=True,
        deadline=12.5,
    )


def test_values_keep_their_types() -> None:
    """Python holds 1, 1.0 and True equal; a catalogue does not."""
    values = [{"integer": 1}, {"number": 1.0}, {"boolean": True}, {"text": "1"}]
    message = recall_pb2.Filter(predicates=[{"attribute": "any", "in": {"values": values}}])
    wanted = to_query(by_history(filter=message), ("a",), None).filter
    assert wanted is not None
    (predicate,) = wanted.predicates
    assert isinstance(predicate, IsIn)
    assert [(type(value), value) for value in predicate.values] == [(int, 1), (float, 1.0), (bool, True), (str, "1")]


def test_a_filter_without_predicates_is_none() -> None:
    assert to_query(by_history(filter=recall_pb2.Filter()), ("a",), None) == to_query(by_history(), ("a",), None)


def test_a_request_by_prompt_has_no_history() -> None:
    assert to_query(by_prompt(5, 2**32 - 1), (), None) == RecallQuery(prompt=(5, 2**32 - 1))


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("UNSPECIFIED", CacheMode.USE),
        ("USE", CacheMode.USE),
        ("REFRESH", CacheMode.REFRESH),
        ("BYPASS", CacheMode.BYPASS),
    ],
)
def test_every_cache_mode_of_the_contract_has_a_meaning(name: str, mode: CacheMode) -> None:
    assert to_query(by_history(cache_mode=f"CACHE_MODE_{name}"), ("a",), None).cache_mode is mode


@pytest.mark.parametrize(
    ("name", "mode"),
    [("UNSPECIFIED", SearchMode.BEAM), ("BEAM", SearchMode.BEAM), ("PROVEN", SearchMode.PROVEN)],
)
def test_every_search_mode_of_the_contract_has_a_meaning(name: str, mode: SearchMode) -> None:
    assert to_query(by_history(search_mode=f"SEARCH_MODE_{name}"), ("a",), None).search_mode is mode


def test_an_answer_becomes_a_response_field_by_field() -> None:
    response = read_response(make_answer(2))
    assert response == recall_pb2.RecallResponse(
        request_id="r",
        items=[
            recall_pb2.RecalledItem(
                item_id="item-0", score=-1.0, sid=[0, 1, 2], step_log_probs=[0, -0.0625, -0.125], step_ranks=[1, 2, 3]
            ),
            recall_pb2.RecalledItem(
                item_id="item-1",
                score=-1.125,
                sid=[3, 4, 5],
                step_log_probs=[-0.1875, -0.25, -0.3125],
                step_ranks=[4, 5, 6],
            ),
        ],
        completeness=recall_pb2.Completeness(state="COMPLETENESS_STATE_COMPLETE"),
        proven_count=2,
        served_from="SERVED_FROM_LOCAL_CACHE",
        bundle="main",
        bundle_version="m1",
        catalog_version="c7",
        score_space="SCORE_SPACE_CODEBOOK",
        beam_width=20,
        unknown_history_items=4,
        unknown_excluded_items=6,
        attribution_token="t",
        timings=recall_pb2.Timings(queue_us=1, prefill_us=20, decode_us=300, total_us=4_000),
        rows_forwarded=61,
        rows_skipped=17,
    )


def test_without_steps_items_carry_none() -> None:
    response = read_response(make_answer(2, steps=False))
    assert [(list(item.step_log_probs), list(item.step_ranks)) for item in response.items] == [([], [])] * 2


def test_an_answer_without_items_is_a_response_without_items() -> None:
    answer = make_answer(0, short_reason=ShortReason.CATALOG_EXHAUSTED)
    assert len(read_response(answer).items) == 0


@pytest.mark.parametrize("reason", ShortReason)
def test_a_short_answer_says_why(reason: ShortReason) -> None:
    completeness = read_response(make_answer(short_reason=reason)).completeness
    assert completeness.state == recall_pb2.COMPLETENESS_STATE_SHORT
    assert recall_pb2.ShortReason.Name(completeness.short_reason) == f"SHORT_REASON_{reason.name}"


@pytest.mark.parametrize(
    ("field", "member"),
    [*(("served_from", m) for m in ServedFrom), *(("score_space", m) for m in ScoreSpace)],
    ids=str,
)
def test_enums_keep_their_names_on_the_wire(field: str, member: Enum) -> None:
    response = read_response(dataclasses.replace(make_answer(), **{field: member}))
    value = response.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number[getattr(response, field)]
    assert value.name == f"{field.upper()}_{member.name}"


def test_a_bundle_is_told_in_full() -> None:
    message = to_bundle_message(MAIN)
    for field in dataclasses.fields(MAIN):
        expected = getattr(MAIN, field.name)
        told = getattr(message, field.name)
        if field.name == "score_space":
            assert told == recall_pb2.SCORE_SPACE_VOCABULARY
        elif field.name == "attributes":
            assert [(attribute.name, recall_pb2.AttributeType.Name(attribute.type)) for attribute in told] == [
                ("category", "ATTRIBUTE_TYPE_TEXT"),
                ("in_stock", "ATTRIBUTE_TYPE_BOOLEAN"),
                ("price", "ATTRIBUTE_TYPE_NUMBER"),
                ("published", "ATTRIBUTE_TYPE_INTEGER"),
            ]
        else:
            assert (tuple(told) if field.name == "codebook_sizes" else told) == expected
