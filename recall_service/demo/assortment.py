"""What the synthetic shop sells: items with readable titles, structured semantic IDs and skewed popularity.

A semantic ID follows what an item is, as one quantised from text embeddings would: the first level is the kind of
product (kinds of one department are neighbours), the second its brand and style, the third adjective and colour. Two
items alike in all of these share a SID. What the catalogue knows beside that is department, brand and price. This
module knows no shoppers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from item_catalog.sid import SidLayout
from recall_service.demo.words import BRANDS, COLOURS, DEPARTMENTS, KINDS, KINDS_PER_DEPARTMENT, STYLES

LAYOUT = SidLayout((256, 256, 256))
NUM_KINDS = len(KINDS)
NUM_STYLES = len(STYLES)
_NUM_VARIANTS = len(STYLES[0])
_BRANDS_PER_DEPARTMENT = 20
_HOUSE_STYLE_SHARE = 0.6  # of a brand's items that come in the brand's own style


@dataclass(frozen=True, slots=True, eq=False)
class Assortment:
    """One row per item, n in all, ordered by kind.

    item_ids, titles: n strings each; item ids are unique.
    sids: int32 [n, 3].
    kind, brand, style: int32 [n], indices into the word lists.
    price: float64 [n], above 0, with one decimal.
    popularity: float64 [n], how much an item draws within its kind; sums to 1 over the items of a kind.
    kind_popularity: float64 [NUM_KINDS], sums to 1.
    """

    item_ids: tuple[str, ...]
    titles: tuple[str, ...]
    sids: NDArray[np.int32]
    kind: NDArray[np.int32]
    brand: NDArray[np.int32]
    style: NDArray[np.int32]
    price: NDArray[np.float64]
    popularity: NDArray[np.float64]
    kind_popularity: NDArray[np.float64]

    @property
    def department(self) -> NDArray[np.str_]:
        """The name of each item's department: text [n]."""
        return np.array(list(DEPARTMENTS))[self.kind // KINDS_PER_DEPARTMENT]

    def attributes(self) -> dict[str, NDArray[np.str_] | NDArray[np.float64]]:
        """What filters may ask of an item, by name: values [n]."""
        return {"department": self.department, "brand": np.array(BRANDS)[self.brand], "price": self.price}

    def ids_of(self, rows: NDArray[np.integer]) -> list[str]:
        """The ids of the items in `rows` int [m]."""
        return [self.item_ids[row] for row in rows]

    def items_by_sid(self, rows: NDArray[np.integer]) -> dict[tuple[int, ...], list[str]]:
        """The ids of the items in `rows` int [m] on each of their SIDs, in order of the ids."""
        items: dict[tuple[int, ...], list[str]] = {}
        for item_id, sid in sorted(zip(self.ids_of(rows), map(tuple, self.sids[rows].tolist()), strict=True)):
            items.setdefault(sid, []).append(item_id)
        return items


def zipf(size: int, exponent: float) -> NDArray[np.float64]:
    """Shares of ranks 1..size, proportional to rank ** -exponent: float64 [size], sums to 1."""
    weights = np.power(np.arange(1.0, size + 1), -exponent)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def make_assortment(rng: np.random.Generator, num_items: int) -> Assortment:
    """Draw an assortment of `num_items` items, at least one of each kind."""
    kind_popularity = rng.permutation(zipf(NUM_KINDS, 0.5))
    more_kinds = rng.choice(NUM_KINDS, num_items - NUM_KINDS, p=kind_popularity)
    kind = np.sort(np.concatenate([np.arange(NUM_KINDS), more_kinds])).astype(np.int32)
    brand = _draw_brands(rng, kind)
    house_style = rng.integers(NUM_STYLES, size=len(BRANDS))
    own_style = rng.random(num_items) < _HOUSE_STYLE_SHARE
    style = np.where(own_style, house_style[brand], rng.integers(NUM_STYLES, size=num_items)).astype(np.int32)
    variant = rng.choice(_NUM_VARIANTS, num_items, p=zipf(_NUM_VARIANTS, 0.3))
    colour = rng.choice(len(COLOURS), num_items, p=zipf(len(COLOURS), 0.3))

    kind_codes = np.sort(rng.choice(LAYOUT.codebook_sizes[0], NUM_KINDS, replace=False))
    sids = np.stack([kind_codes[kind], brand * NUM_STYLES + style, variant * len(COLOURS) + colour], axis=1)
    return Assortment(
        item_ids=tuple(f"sku-{number:06d}" for number in range(num_items)),
        titles=_titles(kind, brand, style, variant, colour),
        sids=sids.astype(np.int32),
        kind=kind,
        brand=brand,
        style=style,
        price=_prices(rng.spawn(1)[0], kind),  # from a stream of its own: the shop is the same with and without prices
        popularity=_popularity_within_kind(rng, kind),
        kind_popularity=kind_popularity,
    )


def _draw_brands(rng: np.random.Generator, kind: NDArray[np.int32]) -> NDArray[np.int32]:
    """A brand for each item, from the few that its department carries."""
    carried = np.stack([rng.permutation(len(BRANDS))[:_BRANDS_PER_DEPARTMENT] for _ in DEPARTMENTS])
    place = rng.choice(_BRANDS_PER_DEPARTMENT, len(kind), p=zipf(_BRANDS_PER_DEPARTMENT, 0.5))
    return carried[kind // KINDS_PER_DEPARTMENT, place].astype(np.int32)


def _popularity_within_kind(rng: np.random.Generator, kind: NDArray[np.int32]) -> NDArray[np.float64]:
    sizes = np.bincount(kind, minlength=NUM_KINDS)
    return np.concatenate([rng.permutation(zipf(size, 0.9)) for size in sizes])


def _prices(rng: np.random.Generator, kind: NDArray[np.int32]) -> NDArray[np.float64]:
    """A price for each item, around what is usual for its kind."""
    usual = rng.lognormal(3.5, 0.8, NUM_KINDS)
    return np.maximum(np.round(usual[kind] * rng.lognormal(0.0, 0.4, len(kind)), 1), 0.1)


def _titles(*features: NDArray[np.integer]) -> tuple[str, ...]:
    """Titles of items; of items alike in every feature, the second and later ones are numbered."""
    count_of: dict[str, int] = {}
    titles = []
    for kind, brand, style, variant, colour in zip(*(feature.tolist() for feature in features), strict=True):
        title = f"{BRANDS[brand]} {STYLES[style][variant]} {KINDS[kind]}, {COLOURS[colour]}"
        count_of[title] = count_of.get(title, 0) + 1
        titles.append(title if count_of[title] == 1 else f"{title}, no. {count_of[title]}")
    return tuple(titles)
