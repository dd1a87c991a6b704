"""Random filters that fit an attribute: few distinct values, so that they meet each other's, and the extremes."""

from collections.abc import Mapping

from hypothesis import strategies as st

from item_catalog.attributes import AttributeKind, Value
from item_catalog.filtering.filters import Filter, InRange, IsIn, NotIn, Predicate

_LARGE = [2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1]
INTEGERS: st.SearchStrategy[Value] = st.integers(-3, 3) | st.sampled_from(_LARGE)
NUMBERS: st.SearchStrategy[Value] = st.sampled_from(
    [-0.0, 0.0, 0.5, 1.0, 2.0, -2.5, 2.0**53, 2.0**63, 5e-324, 1.7976931348623157e308]
)
VALUES: dict[AttributeKind, st.SearchStrategy[Value]] = {
    AttributeKind.TEXT: st.sampled_from(["", "a", "b", "ab", "é", "\uffff", "\U0001f600", "1", "True"]),
    AttributeKind.INTEGER: INTEGERS,
    AttributeKind.NUMBER: NUMBERS | INTEGERS,
    AttributeKind.BOOLEAN: st.booleans(),
}


@st.composite
def predicates(draw: st.DrawFn, attribute: str, kind: AttributeKind) -> Predicate:
    values = VALUES[kind]
    shapes = ["in", "not_in"] + ["range"] * (kind in (AttributeKind.INTEGER, AttributeKind.NUMBER))
    shape = draw(st.sampled_from(shapes))
    if shape != "range":
        # beyond eight values they are looked up in another way
        listed = tuple(draw(st.lists(values, min_size=1, max_size=3) | st.lists(values, min_size=9, max_size=14)))
        return IsIn(attribute, listed) if shape == "in" else NotIn(attribute, listed)
    lower = draw(st.sampled_from(["", "at_least", "above"]))
    upper = draw(st.sampled_from(["at_most", "below"] if not lower else ["", "at_most", "below"]))
    return InRange(attribute, **{side: draw(values) for side in (lower, upper) if side})


@st.composite
def filters(draw: st.DrawFn, kinds: Mapping[str, AttributeKind], max_size: int = 3) -> Filter:
    """0 to `max_size` predicates; they may contradict each other."""
    if not kinds:
        return Filter(())
    one = st.sampled_from(sorted(kinds)).flatmap(lambda name: predicates(name, kinds[name]))
    return Filter(tuple(draw(st.lists(one, max_size=max_size))))
