"""Every violation at once, each with its field path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.errors import InvalidRequest, NotReady, UnknownVersion
from recall_service.rpc.validation import _violations, check_batch, check_recall, find_bundle
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import MAIN, SMALL, by_history, by_prompt


def violated_fields(request: recall_pb2.RecallRequest, prefix: str = "") -> list[str]:
    with pytest.raises(InvalidRequest) as caught:
        check_recall(request, MAIN, prefix)
    assert all(violation.description for violation in caught.value.violations)
    return [violation.field for violation in caught.value.violations]


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        pytest.param(recall_pb2.RecallRequest(), ["context"], id="no context"),
        pytest.param(recall_pb2.RecallRequest(history={}), ["history.item_ids"], id="empty history"),
        pytest.param(recall_pb2.RecallRequest(prompt={}), ["prompt.token_ids"], id="empty prompt"),
        pytest.param(by_prompt(*range(513)), ["prompt.token_ids"], id="prompt too long"),
        pytest.param(by_history(*["a"] * 10_001), ["history.item_ids"], id="history too long"),
        pytest.param(by_history("a", "", "b" * 257), ["history.item_ids[1]", "history.item_ids[2]"], id="item ids"),
        pytest.param(by_history("é" * 129), ["history.item_ids[0]"], id="bytes, not characters"),
        pytest.param(by_history(exclude_item_ids=["a"] * 10_001), ["exclude_item_ids"], id="too many exclusions"),
        pytest.param(
            by_history(exclude_item_ids=["a", "", "é" * 129]),
            ["exclude_item_ids[1]", "exclude_item_ids[2]"],
            id="excluded ids",
        ),
        pytest.param(by_prompt(1, exclude_history=True), ["exclude_history"], id="no history to exclude"),
        pytest.param(by_history(num_items=201), ["num_items"], id="num_items"),
        pytest.param(by_history(beam_width=401), ["beam_width"], id="beam_width"),
        pytest.param(by_history(cache_mode=4), ["cache_mode"], id="unknown cache mode"),
        pytest.param(by_history(search_mode=3), ["search_mode"], id="unknown search mode"),
        pytest.param(by_history(priority=4), ["priority"], id="unknown priority"),
        pytest.param(by_history(request_id="r" * 129), ["request_id"], id="request_id"),
        pytest.param(by_history(user_id="u" * 257), ["user_id"], id="user_id"),
        pytest.param(by_history(scene="s" * 65), ["scene"], id="scene"),
    ],
)
def test_each_violation_names_its_field(request_: recall_pb2.RecallRequest, fields: list[str]) -> None:
    assert violated_fields(request_) == fields


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(
            by_history("a" * 256, num_items=200, beam_width=400, cache_mode=3, search_mode=2), id="history limits"
        ),
        pytest.param(by_history(*["a"] * 10_000), id="longest history"),
        pytest.param(by_prompt(*range(512)), id="longest prompt"),
        pytest.param(by_history("a", exclude_item_ids=["b" * 256] * 10_000, exclude_history=True), id="exclusions"),
        pytest.param(by_history(request_id="r" * 128, user_id="u" * 256, scene="s" * 64), id="longest names"),
    ],
)
def test_what_is_just_within_the_limits_passes(request_: recall_pb2.RecallRequest) -> None:
    check_recall(request_, MAIN)


def texts(most: int) -> st.SearchStrategy[str]:
    """Such that are about as long as they may be, in characters of one byte and of four."""
    return st.builds(
        str.__mul__, st.sampled_from("a\N{PILE OF POO}"), st.sampled_from([0, 1, most // 4, most, most + 1])
    )


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "request_id": texts(128),
    "user_id": texts(256),
    "scene": texts(64),
    "num_items": st.sampled_from([0, 200, 201]),
    "beam_width": st.sampled_from([0, 400, 401]),
    "cache_mode": st.sampled_from([0, 3, 4, -1]),
    "search_mode": st.sampled_from([0, 2, 3]),
    "priority": st.sampled_from([0, 3, 4]),
    "exclude_history": st.booleans(),
    "exclude_item_ids": st.lists(texts(256), max_size=2),
    "filter": st.sampled_from([{}, {"predicates": [{"attribute": "prize", "in": {"values": [{"integer": 1}]}}]}]),
}
CONTEXTS = st.one_of(
    st.just({"history": {"item_ids": ["a"]}}),
    st.just({}),
    st.fixed_dictionaries({"history": st.fixed_dictionaries({"item_ids": st.lists(texts(256), max_size=3)})}),
    st.fixed_dictionaries({"history": st.fixed_dictionaries({"item_ids": st.just(["a"] * 10_001)})}),
    st.fixed_dictionaries({"prompt": st.fixed_dictionaries({"token_ids": st.lists(st.just(1), max_size=2)})}),
)


@pytest.mark.parametrize("field", FIELDS)
@given(data=st.data())
def test_what_is_told_sound_at_once_has_no_violation(field: str, data: st.DataObject) -> None:
    request = recall_pb2.RecallRequest(**data.draw(CONTEXTS), **{field: data.draw(FIELDS[field])})
    if expected := list(_violations(request, MAIN)):
        with pytest.raises(InvalidRequest) as caught:
            check_recall(request, MAIN)
        assert caught.value.violations == expected
    else:
        assert check_recall(request, MAIN) == tuple(request.history.item_ids)


def test_all_violations_are_found_in_one_go() -> None:
    request = by_history("", num_items=999, beam_width=999, cache_mode=9, scene="s" * 65)
    expected = ["scene", "history.item_ids[0]", "num_items", "beam_width", "cache_mode"]
    assert violated_fields(request) == expected
    assert violated_fields(request, "requests[2].") == [f"requests[2].{field}" for field in expected]


def test_a_violation_says_value_and_remedy() -> None:
    with pytest.raises(InvalidRequest, match=r"num_items: 5; bundle small allows at most 4, and 0 means its default"):
        check_recall(by_history(num_items=5), SMALL)


@pytest.mark.parametrize(("num_requests", "is_fit"), [(0, False), (1, True), (8, True), (9, False)])
def test_a_batch_has_one_to_the_maximum_of_entries(num_requests: int, is_fit: bool) -> None:
    if is_fit:
        check_batch(num_requests, 8)
    else:
        with pytest.raises(InvalidRequest, match=f"requests: {num_requests} entries; give 1 to 8"):
            check_batch(num_requests, 8)


def test_the_first_bundle_is_the_default_and_others_go_by_name() -> None:
    assert find_bundle((MAIN, SMALL), "") is MAIN
    assert find_bundle((MAIN, SMALL), "small") is SMALL


def test_an_unknown_bundle_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownVersion, match="'other' is not served here; give one of main, small"):
        find_bundle((MAIN, SMALL), "other")


def test_without_any_bundle_the_server_is_not_ready() -> None:
    with pytest.raises(NotReady, match="no bundle is live"):
        find_bundle((), "")
