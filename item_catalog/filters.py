"""What a question demands of items: predicates over attributes, in one form for one meaning. Knows no catalogue.

An item without a value for an attribute satisfies `NotIn` alone.
"""

from dataclasses import dataclass
from typing import TypeAlias

from item_catalog.attributes import Value


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


Predicate: TypeAlias = IsIn | NotIn | InRange


@dataclass(frozen=True, slots=True)
class Filter:
    """All of the predicates hold. Hashable."""

    predicates: tuple[Predicate, ...]
