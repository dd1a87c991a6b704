"""What is demanded of items, in Python's words, and as the messages that are sent.

    recall(history=[...], where=[IsIn("category", ["shoes", "boots"]), InRange("price", at_most=30)])

Attributes and their types are the catalogue's: `serving_info` tells them. An item without a value satisfies `NotIn`
alone. Whether a filter makes sense is the server's to say.
"""

from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from recall_service.stubs.recall.v1 import recall_pb2

Value: TypeAlias = str | int | float | bool


@dataclass(frozen=True, slots=True)
class IsIn:
    """The attribute's value is one of `values`."""

    attribute: str
    values: Collection[Value]


@dataclass(frozen=True, slots=True)
class NotIn:
    """The attribute's value is none of `values`, or there is none."""

    attribute: str
    values: Collection[Value]


@dataclass(frozen=True, slots=True)
class InRange:
    """The attribute's value lies between one or two bounds: at least or above the lower, at most or below the upper."""

    attribute: str
    _: KW_ONLY
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None


Predicate: TypeAlias = IsIn | NotIn | InRange


def to_filter(predicates: Iterable[Predicate]) -> recall_pb2.Filter:
    """All of `predicates` as one message. Raises ValueError naming the one that no message can carry."""
    if isinstance(predicates, IsIn | NotIn | InRange):
        raise ValueError(f"where: {predicates!r} is one predicate; give a list of them")
    message = recall_pb2.Filter()
    for position, predicate in enumerate(predicates):
        try:
            message.predicates.append(_to_predicate(predicate))
        except ValueError as error:
            raise ValueError(f"where[{position}]: {error}") from None
    return message


def _to_predicate(predicate: Predicate) -> recall_pb2.Predicate:
    if not isinstance(predicate, IsIn | NotIn | InRange):
        raise ValueError(f"{predicate!r} is no predicate; give IsIn, NotIn or InRange")
    if not isinstance(predicate.attribute, str):
        raise ValueError(f"{predicate.attribute!r} is no attribute; give its name")
    if isinstance(predicate, InRange):
        return recall_pb2.Predicate(attribute=predicate.attribute, range=_to_range(predicate))
    values = recall_pb2.ValueList(values=_to_values(predicate.values))
    if isinstance(predicate, NotIn):
        return recall_pb2.Predicate(attribute=predicate.attribute, not_in=values)
    of_values: dict[str, Any] = {"in": values}  # a word that Python keeps for itself
    return recall_pb2.Predicate(attribute=predicate.attribute, **of_values)


def _to_values(values: Collection[Value]) -> list[recall_pb2.Value]:
    if isinstance(values, str):  # also a collection of strings: its letters
        raise ValueError(f"{values!r} is one string; give a list of values")
    return [_to_value(value) for value in values]


def _to_range(predicate: InRange) -> recall_pb2.Range:
    names = ("at_least", "above", "at_most", "below")
    bounds = {name: _to_value(bound) for name in names if (bound := getattr(predicate, name)) is not None}
    for one, other in (("at_least", "above"), ("at_most", "below")):
        if one in bounds and other in bounds:
            raise ValueError(f"both {one} and {other} are given; give one of them")
    return recall_pb2.Range(**bounds)


def _to_value(value: Value) -> recall_pb2.Value:
    match value:
        case bool():  # before int, which it also is
            return recall_pb2.Value(boolean=value)
        case int():
            return recall_pb2.Value(integer=value)
        case float():
            return recall_pb2.Value(number=value)
        case str():
            return recall_pb2.Value(text=value)
    raise ValueError(f"{value!r} is no value; give text, an integer, a number, True or False")
