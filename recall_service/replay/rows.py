"""One row of named values, of Parquet or of a JSON line, as a question. Names what is wrong with it by its column."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from google.protobuf.json_format import Parse, ParseDict, ParseError

from recall_service.replay.asked import Answered, Asked
from recall_service.request_log.names import CACHE_MODES, SEARCH_MODES
from recall_service.stubs.recall.v1 import recall_pb2

_TEXTS = ("request_id", "user_id", "scene", "bundle")
_WHOLE_NUMBERS = ("num_items", "beam_width")
_ENUMS = {
    "cache_mode": {name: number for number, name in CACHE_MODES.items()},
    "search_mode": {name: number for number, name in SEARCH_MODES.items()},
}
_TRUTHS = ("exclude_history", "include_steps")
COLUMNS = (
    "history",
    "prompt",
    *_TEXTS,
    *_WHOLE_NUMBERS,
    "filter",
    "exclude_item_ids",
    *_ENUMS,
    *_TRUTHS,
    "arrival_seconds",
    "arrival_time",
    "deadline_seconds",
    "next_items",
)


def question_of(row: Mapping[str, Any], index: int, expected: Answered | None = None) -> Asked:
    """The question that a row asks; a column that is missing or None is not given. Raises ValueError.

    history, exclude_item_ids: item ids, text or integers. prompt: token ids. next_items: what the user took next.
    filter: in protobuf's JSON, as text or as an object.
    arrival_seconds: from any moment that is the same for all rows; arrival_time: a timestamp in its place.
    """
    given = {name: value for name, value in row.items() if value is not None}
    fields: dict[str, Any] = {}
    if "history" in given:
        fields["history"] = recall_pb2.ItemHistory(item_ids=_item_ids("history", given))
    if "prompt" in given:
        tokens = [_whole("prompt", token) for token in _list("prompt", given)]
        fields["prompt"] = recall_pb2.TokenPrompt(token_ids=tokens)
    if len(fields) == 2:
        raise ValueError("both history and prompt are given; give one of them")
    fields |= {name: _is(name, given[name], (str,), "text") for name in _TEXTS if name in given}
    fields |= {name: _whole(name, given[name]) for name in _WHOLE_NUMBERS if name in given}
    fields |= {name: _enum(name, given[name]) for name in _ENUMS if name in given}
    fields |= {name: _truth(name, given[name]) for name in _TRUTHS if name in given}
    if "filter" in given:
        fields["filter"] = _filter(given["filter"])
    if "exclude_item_ids" in given:
        fields["exclude_item_ids"] = _item_ids("exclude_item_ids", given)
    return Asked(
        index=index,
        request=recall_pb2.RecallRequest(**fields),
        arrival_seconds=_arrival(given),
        deadline_seconds=_number("deadline_seconds", given["deadline_seconds"])
        if "deadline_seconds" in given
        else None,
        expected=expected,
        next_items=_item_ids("next_items", given) if "next_items" in given else (),
    )


def _item_ids(name: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple([str(_is(name, item, (str, int), "item ids, text or integers")) for item in _list(name, given)])


def _filter(value: object) -> recall_pb2.Filter:
    if not isinstance(value, str | dict):
        raise ValueError(f"filter: {str(value)[:60]!r}; give a filter in protobuf's JSON")
    message = recall_pb2.Filter()
    try:
        return Parse(value, message) if isinstance(value, str) else ParseDict(value, message)
    except ParseError as error:
        reason = " ".join(str(error).split())  # in one line
        raise ValueError(f"filter: {reason}; give a filter in protobuf's JSON") from None


def _arrival(given: Mapping[str, Any]) -> float:
    if "arrival_time" in given:
        return float(_is("arrival_time", given["arrival_time"], (datetime,), "a timestamp").timestamp())
    return _number("arrival_seconds", given.get("arrival_seconds", 0.0))


def _list(name: str, given: Mapping[str, Any]) -> Sequence[Any]:
    values: Sequence[Any] = _is(name, given[name], (list,), "a list")
    return values


def _whole(name: str, value: object) -> int:
    number: int = _is(name, value, (int,), "whole numbers")
    if not 0 <= number < 2**32:
        raise ValueError(f"{name}: {number}; give 0 to {2**32 - 1}")
    return number


def _enum(name: str, value: object) -> int:
    numbers = _ENUMS[name]
    if value not in numbers:
        raise ValueError(f"{name}: {value!r}; give one of {', '.join(filter(None, numbers))}")
    return numbers[str(value)]


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: {value!r}; give true or false")
    return value


def _number(name: str, value: object) -> float:
    number = float(_is(name, value, (float, int), "a number"))
    if not abs(number) < float("inf"):
        raise ValueError(f"{name}: {number}; give a finite number")
    return number


def _is(name: str, value: object, kinds: tuple[type, ...], wanted: str) -> Any:
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise ValueError(f"{name}: {str(value)[:60]!r}; give {wanted}")
    return value
