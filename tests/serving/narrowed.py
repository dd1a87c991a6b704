"""Random filters and exclusions, and which items they leave by the slowest reading of them."""

import random
from typing import Any

from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn, Predicate
from recall_service.serving.filter_check import filter_violations
from tests.serving.bundles import small_attributes, small_catalog, small_rows

KINDS = {name: column.kind for name, column in small_catalog().attributes.items()}


def items_left(wanted: Filter | None = None, excluded: tuple[str, ...] = (), history: tuple[str, ...] = ()) -> set[str]:
    """The items of `small_rows` that pass, one by one; history: what of it is excluded."""
    _, item_ids = small_rows()
    columns = small_attributes()
    return {
        item
        for row, item in enumerate(item_ids)
        if item not in {*excluded, *history}
        and (wanted is None or all(_holds(p, columns[p.attribute][row]) for p in wanted.predicates))
    }


def _holds(predicate: Predicate, value: Any) -> bool:
    match predicate:
        case IsIn(values=values):
            return value is not None and value in values
        case NotIn(values=values):
            return value is None or value not in values
        case InRange(at_least=at_least, above=above, at_most=at_most, below=below):
            return value is not None and all(
                (
                    at_least is None or value >= at_least,
                    above is None or value > above,
                    at_most is None or value <= at_most,
                    below is None or value < below,
                )
            )


def random_filter(generator: random.Random) -> Filter:
    """One to four predicates, together not contradictory: some pass nothing all the same."""
    while True:
        wanted = Filter(tuple(_random_predicate(generator) for _ in range(generator.choice((1, 1, 2, 2, 3, 4)))))
        if not filter_violations(wanted, KINDS):
            return wanted
        assert not items_left(wanted), "what is refused as contradictory passes something"


def _random_predicate(generator: random.Random) -> Predicate:
    attribute, values = generator.choice(list(small_attributes().items()))
    known = sorted({value for value in values if value is not None})
    if attribute in ("price", "published") and generator.random() < 0.6:
        lower, upper = sorted(generator.sample(known, 2))
        bounds = {generator.choice(("at_least", "above")): lower, generator.choice(("at_most", "below")): upper}
        dropped = generator.choice((None, *bounds))
        return InRange(attribute, **{name: value for name, value in bounds.items() if name != dropped})
    some = tuple(generator.sample(known, generator.randint(1, min(3, len(known)))))
    if attribute == "category" and generator.random() < 0.3:
        some = (*some, "a category that nothing has")
    return generator.choice((IsIn, NotIn))(attribute, some)


def random_items(generator: random.Random, most: int) -> tuple[str, ...]:
    """Up to so many ids, some of them unknown."""
    _, item_ids = small_rows()
    return tuple(generator.choices([*item_ids, "gone", "gone-too"], k=generator.randint(0, most)))
