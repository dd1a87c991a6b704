"""What is known of the items of any catalogue, by chance: one of fifty categories, and a price that is spread evenly.

And the filters that ask for it.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from item_catalog.attribute_columns import attribute_column
from item_catalog.catalog import Catalog
from item_catalog.filtering.filters import Filter, InRange, IsIn

CATEGORY, PRICE = "category", "price"
CATEGORIES = tuple(f"category-{number:02d}" for number in range(50))
MAX_PRICE = 100.0


def with_attributes(catalog: Catalog) -> Catalog:
    """The same items, every one with a category and a price."""
    chance = np.random.default_rng(0)
    codes = chance.integers(0, len(CATEGORIES), catalog.num_items, dtype=np.int32)
    values: dict[str, Any] = {
        CATEGORY: pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(CATEGORIES)),
        PRICE: chance.uniform(0, MAX_PRICE, catalog.num_items),
    }
    columns = {name: attribute_column(name, column) for name, column in values.items()}
    return Catalog.snapshot(catalog.trie, catalog.item_offsets, catalog.item_ids, columns)


def cheap(share: float) -> Filter:
    """About so much of all items, wherever in the catalogue."""
    return Filter((InRange(PRICE, at_most=share * MAX_PRICE),))


def cheap_of_categories(share: float, first: int) -> Filter:
    """About so much of the items of three categories, neighbours in CATEGORIES from number `first` on."""
    wanted = tuple(CATEGORIES[(first + number) % len(CATEGORIES)] for number in range(3))
    return Filter((IsIn(CATEGORY, wanted), *cheap(share).predicates))
