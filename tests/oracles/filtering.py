"""Filters as one would read them aloud: one value, one predicate, in plain Python, where 1 == 1.0 however large."""

from collections.abc import Mapping

from item_catalog.attributes import Value
from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn, Predicate


def passes(values: Mapping[str, Value | None], wanted: Filter) -> bool:
    """Whether an item with these values, None where it has none, satisfies all predicates."""
    return all(_satisfies(values[predicate.attribute], predicate) for predicate in wanted.predicates)


def _satisfies(value: Value | None, predicate: Predicate) -> bool:
    match predicate:
        case IsIn(values=wanted):
            return value is not None and value in wanted
        case NotIn(values=barred):
            return value is None or value not in barred
        case InRange(at_least=at_least, above=above, at_most=at_most, below=below):
            return value is not None and (
                (at_least is None or value >= at_least)
                and (above is None or value > above)
                and (at_most is None or value <= at_most)
                and (below is None or value < below)
            )
