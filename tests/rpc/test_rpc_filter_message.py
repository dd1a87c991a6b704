"""A filter as a message: every violation with its path, and limits met exactly."""

from typing import Any

import pytest

from recall_service.errors import InvalidRequest
from recall_service.rpc import validation
from recall_service.rpc.validation import check_recall
from recall_service.stubs.recall.v1 import recall_pb2
from tests.rpc.fake_backend import MAIN, SMALL, by_history

SHOES: dict[str, Any] = {"attribute": "category", "in": {"values": [{"text": "shoes"}]}}
CHEAP: dict[str, Any] = {"attribute": "price", "range": {"at_most": {"number": 30.0}}}


def filtering(*predicates: dict[str, Any]) -> recall_pb2.RecallRequest:
    return by_history(filter=recall_pb2.Filter(predicates=predicates))


def texts(*values: str) -> dict[str, Any]:
    return {"values": [{"text": value} for value in values]}


@pytest.mark.parametrize(
    ("predicates", "fields"),
    [
        pytest.param([CHEAP] * 33, ["predicates"], id="too many predicates"),
        pytest.param([{"attribute": "category"}], ["predicates[0]"], id="no condition"),
        pytest.param([{**CHEAP, "attribute": "é" * 33}], ["predicates[0].attribute"], id="long name"),
        pytest.param([{**CHEAP, "attribute": ""}], ["predicates[0].attribute"], id="no name"),
        pytest.param([CHEAP, {**CHEAP, "attribute": "prize"}], ["predicates[1].attribute"], id="unknown attribute"),
        pytest.param([{"attribute": "category", "in": {}}], ["predicates[0].in.values"], id="empty list"),
        pytest.param([{"attribute": "category", "not_in": {}}], ["predicates[0].not_in.values"], id="empty not-list"),
        pytest.param(
            [SHOES, {"attribute": "category", "not_in": texts(*map(str, range(1_001)))}],
            ["predicates[1].not_in.values"],
            id="too many values",
        ),
        pytest.param(
            [{"attribute": "category", "not_in": texts(*map(str, range(number, 1_000)))} for number in range(5)],
            ["predicates"],
            id="too many values in all",
        ),
        pytest.param(
            [{"attribute": "category", "in": texts("a", "é" * 129)}], ["predicates[0].in.values[1]"], id="long value"
        ),
        pytest.param(
            [{"attribute": "category", "in": {"values": [{"text": "a"}, {}]}}],
            ["predicates[0].in.values[1]"],
            id="a value that is none",
        ),
        pytest.param(
            [{"attribute": "price", "range": {"above": {}}}], ["predicates[0].range.above"], id="a bound that is none"
        ),
        pytest.param([{"attribute": "price", "range": {}}], ["predicates[0].range"], id="no bound"),
        pytest.param(
            [{"attribute": "price", "in": {"values": [{"number": float("nan")}]}}],
            ["predicates[0].in.values[0]"],
            id="nan",
        ),
        pytest.param(
            [{"attribute": "in_stock", "in": {"values": [{"integer": 1}]}}],
            ["predicates[0].in.values[0]"],
            id="wrong type",
        ),
        pytest.param([{**CHEAP, "attribute": "category"}], ["predicates[0].range"], id="a range of texts"),
        pytest.param([SHOES, {"attribute": "category", "in": texts("hat")}], ["predicates[1]"], id="contradictory"),
    ],
)
def test_each_violation_names_its_path(predicates: list[dict[str, Any]], fields: list[str]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_recall(filtering(*predicates), MAIN)
    assert [violation.field for violation in caught.value.violations] == [f"filter.{field}" for field in fields]
    assert all(violation.description for violation in caught.value.violations)


def test_all_violations_are_found_in_one_go_beside_others() -> None:
    request = filtering({"attribute": "category"}, CHEAP, {"attribute": "price", "in": {"values": [{}] * 2}})
    request.MergeFrom(recall_pb2.RecallRequest(num_items=999, exclude_item_ids=[""]))
    with pytest.raises(InvalidRequest) as caught:
        check_recall(request, MAIN, "requests[3].")
    assert [violation.field for violation in caught.value.violations] == [
        "requests[3].num_items",
        "requests[3].filter.predicates[0]",
        "requests[3].filter.predicates[2].in.values[0]",
        "requests[3].filter.predicates[2].in.values[1]",
        "requests[3].exclude_item_ids[0]",
    ]


def test_an_unknown_attribute_is_told_which_there_are() -> None:
    with pytest.raises(InvalidRequest, match=r"'prize' is unknown.*category, in_stock, price, published"):
        check_recall(filtering({**CHEAP, "attribute": "prize"}), MAIN)
    with pytest.raises(InvalidRequest, match=r"'price' is unknown.*none"):
        check_recall(filtering(CHEAP), SMALL)


def test_what_is_remembered_of_a_filter_is_of_one_catalogue() -> None:
    """And of one writing: values that Python holds equal are different values."""
    request = filtering({"attribute": "in_stock", "in": {"values": [{"boolean": True}]}})
    for _ in range(2):
        check_recall(request, MAIN)
        with pytest.raises(InvalidRequest, match="'in_stock' is unknown"):
            check_recall(request, SMALL)
        with pytest.raises(InvalidRequest, match="give boolean"):
            check_recall(filtering({"attribute": "in_stock", "in": {"values": [{"integer": 1}]}}), MAIN)


def test_filters_that_are_refused_are_not_remembered() -> None:
    """There is no end to them, and what is wrong with each is long."""
    sound, unsound = filtering(CHEAP), filtering(*[{**CHEAP, "attribute": "prize"}] * 8)
    check_recall(sound, MAIN)
    remembered = validation._check_wire_filter.cache_info().currsize
    for _ in range(2):
        check_recall(sound, MAIN)
        with pytest.raises(InvalidRequest) as caught:
            check_recall(unsound, MAIN)
        assert len(caught.value.violations) == 8
    assert validation._check_wire_filter.cache_info().currsize == remembered


@pytest.mark.parametrize(
    "predicates",
    [
        pytest.param([], id="none"),
        pytest.param([CHEAP] * 32, id="most predicates"),
        pytest.param([{"attribute": "category", "in": texts(*map(str, range(1_000)))}], id="most values"),
        pytest.param([{"attribute": "category", "not_in": texts("é" * 128)}], id="longest value"),
        pytest.param([{"attribute": "price", "in": {"values": [{"integer": 30}]}}], id="an integer for a number"),
    ],
)
def test_what_is_just_within_the_limits_passes(predicates: list[dict[str, Any]]) -> None:
    check_recall(filtering(*predicates), MAIN)
