"""What of --where people type at a shell means: category=a,b  category!=c  price<=30  price>10."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recall_service.client import InRange, IsIn, NotIn
from recall_service.client.predicates import Predicate, Value
from recall_service.stubs.recall.v1 import recall_pb2

# An attribute's name, what is said of it, and the values.
_CONDITION = re.compile(r"\s*([^\s=!<>]+)\s*(=|!=|<=|>=|<|>)(.*)", re.DOTALL)
_BOUNDS = {"<=": "at_most", "<": "below", ">=": "at_least", ">": "above"}


_BOOLEANS = {"true": True, "false": False}
# How a word is read by the attribute's type, and what it is where it cannot be.
_READ: Mapping[int, tuple[Callable[[str], Value], str]] = {
    recall_pb2.ATTRIBUTE_TYPE_INTEGER: (int, "no integer"),
    recall_pb2.ATTRIBUTE_TYPE_NUMBER: (float, "no number"),
    recall_pb2.ATTRIBUTE_TYPE_BOOLEAN: (_BOOLEANS.__getitem__, "neither true nor false"),
}


def read_where(conditions: Sequence[str], types: Mapping[str, int]) -> list[Predicate]:
    """Conditions as predicates. types: AttributeType by name, as the server tells it.

    Of an attribute that the server does not have, values are text: it will say so. Raises ValueError naming the
    condition.
    """
    return [_predicate(condition, types) for condition in conditions]


def _predicate(condition: str, types: Mapping[str, int]) -> Predicate:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise ValueError(f"--where {condition!r}: give NAME=A,B or NAME!=A,B, or NAME<=X, <, >= or >")
    name, relation, text = match.groups()
    kind = types.get(name, recall_pb2.ATTRIBUTE_TYPE_UNSPECIFIED)
    try:
        if relation in _BOUNDS:
            is_integer = kind == recall_pb2.ATTRIBUTE_TYPE_INTEGER
            bound: Any = _value(text, kind if is_integer else recall_pb2.ATTRIBUTE_TYPE_NUMBER)
            return InRange(name, **{_BOUNDS[relation]: bound})
        values = [_value(word, kind) for word in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--where {condition!r}: {error}") from None
    return IsIn(name, values) if relation == "=" else NotIn(name, values)


def _value(text: str, kind: int) -> Value:
    word = text.strip()
    read, otherwise = _READ.get(kind, (str, ""))
    try:
        return read(word)
    except (ValueError, KeyError):
        raise ValueError(f"{word!r} is {otherwise}") from None
