"""Random attributes: few distinct values, so that they repeat, and the extremes of each kind."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from hypothesis import strategies as st

from item_catalog.attributes import AttributeKind, Value

ARROW_TYPES = {
    AttributeKind.TEXT: pa.string(),
    AttributeKind.INTEGER: pa.int64(),
    AttributeKind.NUMBER: pa.float64(),
    AttributeKind.BOOLEAN: pa.bool_(),
}
_TEXT = st.sampled_from(["a", "b", "ab", "é", "\uffff", "\U0001f600", "z" * 256])
VALUES: dict[AttributeKind, st.SearchStrategy[Value]] = {
    AttributeKind.TEXT: _TEXT | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
    AttributeKind.INTEGER: st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1),
    AttributeKind.NUMBER: st.sampled_from([-0.0, 0.0, 1.5]) | st.floats(allow_nan=False, allow_infinity=False),
    AttributeKind.BOOLEAN: st.booleans(),
}
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)


def written(kind: AttributeKind, values: Sequence[Value | None]) -> pa.Array:
    return pa.array(values, ARROW_TYPES[kind])


@st.composite
def attributes(draw: st.DrawFn, num_rows: int) -> Mapping[str, pa.Array]:
    """0-3 attributes of `num_rows` values each; None where one is missing."""
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(AttributeKind), max_size=3))
    return {name: draw(columns(kind, num_rows)) for name, kind in kinds.items()}


@st.composite
def columns(draw: st.DrawFn, kind: AttributeKind, num_rows: int) -> pa.Array:
    one = VALUES[kind] if draw(st.booleans()) else st.none() | VALUES[kind]
    return written(kind, draw(st.lists(one, min_size=num_rows, max_size=num_rows)))
