"""What a question demands of items: predicates over attributes, in one form for one meaning. Knows no catalogue.

An item without a value for an attribute satisfies `NotIn` alone.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from item_catalog.attributes import AttributeKind, Value
from item_catalog.filtering.allowed_values import AllowedValues, Bound, by_meaning, is_integer

_MIN_INT64, _MAX_INT64 = -(2**63), 2**63 - 1
_DIGEST_BYTES = 32
_RANGED = (AttributeKind.INTEGER, AttributeKind.NUMBER)
_IS_OF_KIND: dict[AttributeKind, Callable[[Value], bool]] = {
    AttributeKind.TEXT: lambda value: isinstance(value, str),
    AttributeKind.INTEGER: lambda value: is_integer(value) and _is_storable(value),
    AttributeKind.NUMBER: lambda value: (isinstance(value, float) or is_integer(value)) and _is_storable(value),
    AttributeKind.BOOLEAN: lambda value: isinstance(value, bool),
}


@dataclass(frozen=True, slots=True)
class IsIn:
    """The value is one of `values`."""

    attribute: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class NotIn:
    """The value is none of `values`, or there is none."""

    attribute: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class InRange:
    """The value lies between one or two bounds; None for no bound. At most one bound of each side is given."""

    attribute: str
    at_least: Value | None = None
    above: Value | None = None
    at_most: Value | None = None
    below: Value | None = None

    def bounds(self) -> dict[str, Value]:
        """The bounds that are given, by their names."""
        named = {"at_least": self.at_least, "above": self.above, "at_most": self.at_most, "below": self.below}
        return {name: value for name, value in named.items() if value is not None}


Predicate: TypeAlias = IsIn | NotIn | InRange


@dataclass(frozen=True, slots=True)
class Filter:
    """All of the predicates hold; without any, every item passes.

    Hashable; but Python holds 1, 1.0 and True equal, and so filters of them: `digest` tells them apart.
    """

    predicates: tuple[Predicate, ...]

    def canonical(self) -> "Filter":
        """One form for one meaning, as far as that can be told without a catalogue.

        What is said of one attribute is folded into a list of values, or else into one range and values that are not
        in it; attributes and values ascend. Only for a filter in which `filter_problems` finds nothing.
        """
        folded: list[Predicate] = []
        for attribute, allowed in sorted(allowed_by_attribute(self).items()):
            folded += _predicates(attribute, allowed.folded())
        return Filter(tuple(folded))

    def digest(self) -> bytes:
        """32 bytes that tell the meanings of filters apart, and 1, 1.0, True and "1" as well: of the canonical form."""
        # ascii() writes every value so that its type shows, and a number so that it can be read back
        return blake2b(ascii(self.canonical()).encode(), digest_size=_DIGEST_BYTES).digest()


class FilterProblem(NamedTuple):
    """What is wrong with a filter: where, as in `predicates[2].in.values`, and what, with the remedy."""

    path: str
    description: str


def allowed_by_attribute(wanted: Filter) -> dict[str, AllowedValues]:
    """What the predicates allow together, by attribute. Only for a filter in which `filter_problems` finds nothing."""
    parts: defaultdict[str, list[AllowedValues]] = defaultdict(list)
    for predicate in wanted.predicates:
        parts[predicate.attribute].append(_allowed(predicate))
    return {attribute: AllowedValues.all_of(allowed) for attribute, allowed in parts.items()}


def filter_problems(wanted: Filter) -> list[FilterProblem]:
    """All that is wrong with a filter by itself, whatever the catalogue; a contradiction only if nothing else is."""
    problems = [problem for place, predicate in _placed(wanted) for problem in _own_problems(place, predicate)]
    if problems:
        return problems
    allowed = allowed_by_attribute(wanted)
    return _contradictions(wanted, [attribute for attribute, values in allowed.items() if values.is_empty()])


def filter_problems_in(wanted: Filter, attributes: Mapping[str, AttributeKind]) -> list[FilterProblem]:
    """All that is wrong with a filter for a catalogue of these attributes, beside what `filter_problems` finds.

    An integer also stands for the number it is; a number stands for no integer. A value that no item has is lawful.
    """
    problems = []
    for place, predicate in _placed(wanted):
        kind = attributes.get(predicate.attribute)
        if kind is None:
            known = ", ".join(sorted(attributes)) or "none"
            problems.append(
                FilterProblem(f"{place}.attribute", f"{predicate.attribute!r} is unknown; the catalogue has: {known}")
            )
        else:
            problems += _problems_of_kind(place, predicate, kind)
    if problems:
        return problems
    allowed = allowed_by_attribute(wanted)
    return _contradictions(wanted, [name for name, values in allowed.items() if values.is_empty_in(attributes[name])])


def _allowed(predicate: Predicate) -> AllowedValues:
    match predicate:
        case IsIn(values=values):
            return AllowedValues(listed=by_meaning(values))
        case NotIn(values=values):
            return AllowedValues(barred=by_meaning(values))
        case InRange():
            bounds = {name: _number(value) for name, value in predicate.bounds().items()}
            lowers = [Bound(bounds[name], name == "above") for name in ("at_least", "above") if name in bounds]
            uppers = [Bound(bounds[name], name == "below") for name in ("at_most", "below") if name in bounds]
            return AllowedValues(lower=next(iter(lowers), None), upper=next(iter(uppers), None))


def _number(bound: Value) -> int | float:
    (value,) = by_meaning([bound]).values()
    assert not isinstance(value, str)
    return value


def _predicates(attribute: str, folded: AllowedValues) -> Iterator[Predicate]:
    if folded.listed is not None:
        yield IsIn(attribute, tuple(folded.listed.values()))
    if folded.lower is not None or folded.upper is not None:
        lower, upper = folded.lower, folded.upper
        bounds: dict[str, Value] = {}
        if lower is not None:
            bounds["above" if lower.is_open else "at_least"] = lower.value
        if upper is not None:
            bounds["below" if upper.is_open else "at_most"] = upper.value
        yield InRange(attribute, **bounds)
    if folded.barred is not None:
        yield NotIn(attribute, tuple(folded.barred.values()))


def _placed(wanted: Filter) -> Iterator[tuple[str, Predicate]]:
    for index, predicate in enumerate(wanted.predicates):
        yield f"predicates[{index}]", predicate


def _list_place(place: str, predicate: IsIn | NotIn) -> str:
    return f"{place}.{'in' if isinstance(predicate, IsIn) else 'not_in'}.values"


def _own_problems(place: str, predicate: Predicate) -> Iterator[FilterProblem]:
    if not predicate.attribute:
        yield FilterProblem(f"{place}.attribute", "it is empty; name an attribute of the catalogue")
    if isinstance(predicate, InRange):
        yield from _range_problems(place, predicate)
    elif not predicate.values:
        yield FilterProblem(_list_place(place, predicate), "the list is empty; give at least one value")
    for where, value in _stray_values(place, predicate, _is_storable):
        if isinstance(value, float):
            yield FilterProblem(where, f"{value} is no finite number; give one, or leave it out")
        else:
            yield FilterProblem(where, f"{value} does not fit 64 bits; give {_MIN_INT64} to {_MAX_INT64}")


def _range_problems(place: str, predicate: InRange) -> Iterator[FilterProblem]:
    bounds = predicate.bounds()
    if not bounds:
        yield FilterProblem(f"{place}.range", "it has no bound; give one or two")
    for one, other in (("at_least", "above"), ("at_most", "below")):
        if one in bounds and other in bounds:
            yield FilterProblem(f"{place}.range", f"both {one} and {other} are given; give one of them")
    for name, value in bounds.items():
        if isinstance(value, bool | str):
            yield FilterProblem(f"{place}.range.{name}", f"{value!r} is no bound; give an integer or a number")


def _problems_of_kind(place: str, predicate: Predicate, kind: AttributeKind) -> Iterator[FilterProblem]:
    if isinstance(predicate, InRange) and kind not in _RANGED:
        yield FilterProblem(
            f"{place}.range", f"{predicate.attribute!r} is {kind.value}; only integers and numbers have ranges, use in"
        )
        return
    for where, value in _stray_values(place, predicate, _IS_OF_KIND[kind]):
        yield FilterProblem(where, f"{value!r} for {predicate.attribute!r}, which is {kind.value}; give {kind.value}")


def _stray_values(place: str, predicate: Predicate, is_lawful: Callable[[Value], bool]) -> Iterator[tuple[str, Value]]:
    """The values and bounds that are not lawful, with their places."""
    if isinstance(predicate, InRange):
        for name, value in predicate.bounds().items():
            if not is_lawful(value):
                yield f"{place}.range.{name}", value
    else:
        for index, value in enumerate(predicate.values):
            if not is_lawful(value):
                yield f"{_list_place(place, predicate)}[{index}]", value


def _is_storable(value: Value) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case int():
            return _MIN_INT64 <= value <= _MAX_INT64
        case str():
            return True


def _contradictions(wanted: Filter, attributes: Sequence[str]) -> list[FilterProblem]:
    """One for each attribute, at the last predicate that names it."""
    last = {predicate.attribute: place for place, predicate in _placed(wanted)}
    return [
        FilterProblem(last[attribute], f"no value of {attribute!r} satisfies all that is said of it; drop a predicate")
        for attribute in attributes
    ]
