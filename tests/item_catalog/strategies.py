"""Random catalogues, small enough to check by hand and dense enough to collide."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.sid import SidLayout


class Rows(NamedTuple):
    layout: SidLayout
    sids: list[tuple[int, ...]]
    item_ids: list[int] | list[str]

    @property
    def pairs(self) -> list[tuple[int | str, tuple[int, ...]]]:
        return list(zip(self.item_ids, self.sids, strict=True))

    def build(self, row_order: list[int] | None = None, attributes: Mapping[str, pa.Array] | None = None) -> Catalog:
        rows = list(range(len(self.sids))) if row_order is None else row_order
        ids = [self.item_ids[row] for row in rows]
        sids = np.array([self.sids[row] for row in rows])
        columns = {name: values.take(pa.array(rows)) for name, values in (attributes or {}).items()}
        return build_catalog(self.layout, sids, np.array(ids) if isinstance(ids[0], int) else ids, columns)


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """1-40 rows on 1-8 levels; codes crowd at both ends of codebooks of up to 65,536."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 256, 8_192, 65_536]), min_size=1, max_size=8))
    codes = [st.integers(0, min(size, 3) - 1) | st.integers(max(size - 2, 0), size - 1) for size in sizes]
    item_ids = draw(st.lists(INT64, min_size=1, max_size=40, unique=True) | st.lists(TEXT, min_size=1, unique=True))
    sids = draw(st.lists(st.tuples(*codes), min_size=len(item_ids), max_size=len(item_ids)))
    return Rows(SidLayout(tuple(sizes)), sids, item_ids)
