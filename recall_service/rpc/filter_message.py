"""A request's filter: whether the message is well formed and within its limits, and what it says in our own words.

What it means to a catalogue is not known here: `serving.filter_check` judges that.
"""

from collections.abc import Iterator, Sequence

from item_catalog.attributes import MAX_TEXT_BYTES, Value
from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn, Predicate
from recall_service.errors import Violation
from recall_service.stubs.recall.v1 import recall_pb2

MAX_PREDICATES = 32
MAX_VALUES = 1_000  # of one list
MAX_ALL_VALUES = 4_000  # of a whole filter: to judge what they mean together takes 2 us each, on the event loop
MAX_ATTRIBUTE_BYTES = 64
_LISTS = ("in", "not_in")


def form_violations(message: recall_pb2.Filter) -> Iterator[Violation]:
    """What is missing or too much, by its path in the request. Lists that are too long are not looked into."""
    if (num_predicates := len(message.predicates)) > MAX_PREDICATES:
        yield Violation("filter.predicates", f"{num_predicates:,} predicates; give at most {MAX_PREDICATES}")
        return
    num_values = sum(len(getattr(predicate, field).values) for predicate in message.predicates for field in _LISTS)
    if num_values > MAX_ALL_VALUES:
        yield Violation("filter.predicates", f"{num_values:,} values in all; give at most {MAX_ALL_VALUES:,}")
        return
    for position, predicate in enumerate(message.predicates):
        yield from _predicate_violations(f"filter.predicates[{position}]", predicate)


def to_filter(message: recall_pb2.Filter) -> Filter:
    """A filter in which `form_violations` finds nothing."""
    return Filter(tuple(map(_to_predicate, message.predicates)))


def _predicate_violations(path: str, predicate: recall_pb2.Predicate) -> Iterator[Violation]:
    if (num_bytes := len(predicate.attribute.encode())) > MAX_ATTRIBUTE_BYTES:
        yield Violation(f"{path}.attribute", f"{num_bytes:,} bytes; give at most {MAX_ATTRIBUTE_BYTES}")
    condition = predicate.WhichOneof("condition")
    if condition is None:
        yield Violation(path, "no condition is given; give one of in, not_in and range")
    elif condition == "range":
        for field, bound in predicate.range.ListFields():
            yield from _value_violations(f"{path}.range.{field.name}", bound)
    else:
        yield from _list_violations(f"{path}.{condition}.values", getattr(predicate, condition).values)


def _list_violations(path: str, values: Sequence[recall_pb2.Value]) -> Iterator[Violation]:
    if len(values) > MAX_VALUES:
        yield Violation(path, f"{len(values):,} values; give at most {MAX_VALUES:,}")
        return
    for position, value in enumerate(values):
        yield from _value_violations(f"{path}[{position}]", value)


def _value_violations(path: str, value: recall_pb2.Value) -> Iterator[Violation]:
    kind = value.WhichOneof("kind")
    if kind is None:
        yield Violation(path, "no value is given; give one of text, integer, number and boolean")
    elif kind == "text" and (num_bytes := len(value.text.encode())) > MAX_TEXT_BYTES:
        yield Violation(path, f"{num_bytes:,} bytes; give at most {MAX_TEXT_BYTES}")


def _to_predicate(message: recall_pb2.Predicate) -> Predicate:
    condition = message.WhichOneof("condition")
    assert condition is not None, "its form is checked"
    if condition == "range":
        bounds = {field.name: to_value(bound) for field, bound in message.range.ListFields()}
        return InRange(message.attribute, **bounds)
    values = tuple(map(to_value, getattr(message, condition).values))
    return IsIn(message.attribute, values) if condition == "in" else NotIn(message.attribute, values)


def to_value(message: recall_pb2.Value) -> Value:
    """A value whose form is checked."""
    kind = message.WhichOneof("kind")
    assert kind is not None, "its form is checked"
    value: Value = getattr(message, kind)
    return value
