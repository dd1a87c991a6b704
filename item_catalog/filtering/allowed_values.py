"""The values that an attribute may have: a list, bounds, and values that are barred, folded into one form.

Values mean what they are: 1 and 1.0 are one number, compared exactly however large they are; True is no number, and
"1" neither. Knows no predicates and no columns.
"""

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from item_catalog.attributes import AttributeKind, Value

_INT64 = np.iinfo(np.int64)
_BOOLEAN, _NUMBER, _TEXT = range(3)

# What a value means: its family, so that families never mix, and itself. Sorts, and 1 equals 1.0.
Meaning: TypeAlias = tuple[int, Value]


class Bound(NamedTuple):
    """Where a range ends. is_open: the value itself lies outside."""

    value: int | float
    is_open: bool


@dataclass(frozen=True, slots=True)
class AllowedValues:
    """What is allowed: the listed values, or all where there is no list; within the bounds; without those barred."""

    listed: dict[Meaning, Value] | None = None
    barred: dict[Meaning, Value] | None = None
    lower: Bound | None = None
    upper: Bound | None = None

    @classmethod
    def all_of(cls, parts: Sequence["AllowedValues"]) -> "AllowedValues":
        """What all parts allow."""
        lists = [part.listed for part in parts if part.listed is not None]
        barred = [part.barred for part in parts if part.barred is not None]
        lowers = [part.lower for part in parts if part.lower is not None]
        uppers = [part.upper for part in parts if part.upper is not None]
        return cls(
            _in_all(lists) if lists else None,
            by_meaning([value for values in barred for value in values.values()]) if barred else None,
            # At one value an open bound is the narrower one; of 1 and 1.0 the integer is kept, whatever the order.
            max(lowers, key=lambda bound: (bound.value, bound.is_open, is_integer(bound.value)), default=None),
            min(uppers, key=lambda bound: (bound.value, not bound.is_open, not is_integer(bound.value)), default=None),
        )

    def folded(self) -> "AllowedValues":
        """The one form of it: a list alone, or bounds and what is barred between them."""
        if self.listed is None:
            barred = {meaning: value for meaning, value in (self.barred or {}).items() if self._is_within(meaning)}
            return AllowedValues(None, barred or None, self.lower, self.upper)
        if self.barred is None and self.lower is None and self.upper is None:
            return self
        kept = self.listed.keys() - (self.barred or {}).keys()
        return AllowedValues(
            {meaning: value for meaning, value in self.listed.items() if meaning in kept and self._is_within(meaning)}
        )

    def is_empty(self) -> bool:
        """Whether no value is allowed, as far as that can be told without knowing what the values are."""
        folded = self.folded()
        if folded.listed is not None:
            return not folded.listed
        if self.lower is None or self.upper is None or self.lower.value < self.upper.value:
            return False
        is_point = self.lower.value == self.upper.value and not (self.lower.is_open or self.upper.is_open)
        return not is_point or folded.barred is not None

    def is_empty_in(self, kind: AttributeKind) -> bool:
        """Whether no value of an attribute of this kind is allowed, though `is_empty` cannot tell: none lies between.

        All values and bounds are of that kind.
        """
        if self.is_empty() or self.listed is not None or kind not in (AttributeKind.INTEGER, AttributeKind.NUMBER):
            return False
        first, last = closed_range(kind, self.lower, self.upper)
        num_barred = len(self.folded().barred or {})
        return first > last or (kind is AttributeKind.INTEGER and num_barred > last - first)

    def _is_within(self, meaning: Meaning) -> bool:
        family, value = meaning
        if self.lower is None and self.upper is None:
            return True
        if family != _NUMBER or isinstance(value, str):
            return False
        is_above = (
            self.lower is None or value > self.lower.value or (value == self.lower.value and not self.lower.is_open)
        )
        is_below = (
            self.upper is None or value < self.upper.value or (value == self.upper.value and not self.upper.is_open)
        )
        return is_above and is_below


def by_meaning(values: Collection[Value]) -> dict[Meaning, Value]:
    """Each value once, ascending; of 1 and 1.0 the integer is kept, and 0.0 for -0.0."""
    if len(set(map(type, values))) == 1:  # as nearly always: many values of one type are sorted at once
        plain = sorted({value + 0.0 if isinstance(value, float) else value for value in values})
        family = _family(plain[0])
        return {(family, value): value for value in plain}
    distinct: dict[Meaning, Value] = {}
    for value in values:
        meaning = _family(value), value
        if meaning not in distinct or is_integer(value):
            distinct[meaning] = value + 0.0 if isinstance(value, float) else value
    return dict(sorted(distinct.items(), key=lambda item: item[0]))


def closed_range(kind: AttributeKind, lower: Bound | None, upper: Bound | None) -> tuple[int | float, int | float]:
    """The first and the last value of a kind between two bounds, both inside; nothing lies there if first > last.

    INTEGER gives two int64. NUMBER gives two float64, of which one may be infinite where nothing lies: an integer bound
    that is no float64 moves inwards to the next one.
    """
    if kind is AttributeKind.INTEGER:
        first = _INT64.min if lower is None else int(lower.value) + lower.is_open
        last = _INT64.max if upper is None else int(upper.value) - upper.is_open
        return (1, 0) if first > _INT64.max or last < _INT64.min else (first, last)
    return (
        -sys.float_info.max if lower is None else _float_inside(lower, towards=math.inf),
        sys.float_info.max if upper is None else _float_inside(upper, towards=-math.inf),
    )


def _float_inside(bound: Bound, towards: float) -> float:
    nearest = float(bound.value)
    is_outside = nearest < bound.value if towards > 0 else nearest > bound.value  # exact, for Python compares so
    return math.nextafter(nearest, towards) if is_outside or (bound.is_open and nearest == bound.value) else nearest


def _in_all(lists: Sequence[dict[Meaning, Value]]) -> dict[Meaning, Value]:
    if len(lists) == 1:
        return lists[0]
    meanings = set(lists[0]).intersection(*lists[1:])
    return by_meaning([values[meaning] for values in lists for meaning in meanings])


def _family(value: Value) -> int:
    return _BOOLEAN if isinstance(value, bool) else _TEXT if isinstance(value, str) else _NUMBER


def is_integer(value: Value) -> bool:
    """Whether a value is an integer; Python takes True for one."""
    return isinstance(value, int) and not isinstance(value, bool)
