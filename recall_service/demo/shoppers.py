"""How the shoppers of the synthetic shop choose: a few interests that drift, companion products, a taste for a style.

At each step a shopper turns to a kind of product, either a companion of what was taken last (a sleeping bag after a
tent) or one of a few interests, then looks at a handful of its items, drawn by popularity, and takes the one that
suits best: the favourite style, the brand taken last, nothing already owned if it can be helped. What comes next
therefore depends on the whole history, most on its end. All shoppers walk at once, one step at a time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recall_service.demo.assortment import NUM_KINDS, NUM_STYLES, Assortment, zipf
from recall_service.demo.words import KINDS_PER_DEPARTMENT

_NUM_INTERESTS = 3
_NUM_COMPANIONS = 3  # of a kind
_NUM_LOOKS = 8  # items looked at before one is taken
_COMPANION_SHARE = 0.4  # of steps that follow the last item rather than an interest
_DRIFT_SHARE = 0.1  # of steps after which one interest is replaced
_NEARBY_SHARE = 0.75  # of companions and new interests that stay in the department
_STYLE_WEIGHT = 1.5  # what the favourite style adds to the appeal of an item; the rest of it is Gumbel noise
_BRAND_WEIGHT = 1.5  # what the brand taken last adds


@dataclass(slots=True, eq=False)
class _Shoppers:
    """Where every shopper stands, one row each.

    interests: int64 [n, 3], kinds. style: int64 [n], the favourite. last_item: int64 [n].
    """

    interests: NDArray[np.int64]
    style: NDArray[np.int64]
    last_item: NDArray[np.int64]


def walk(rng: np.random.Generator, assortment: Assortment, num_shoppers: int, num_steps: int) -> NDArray[np.int32]:
    """What each shopper took, oldest first: item rows int32 [num_shoppers, num_steps]."""
    companions = _nearby_kinds(rng, assortment, np.repeat(np.arange(NUM_KINDS)[:, None], _NUM_COMPANIONS, axis=1))
    first_kind = rng.choice(NUM_KINDS, num_shoppers, p=assortment.kind_popularity)
    home = np.repeat(first_kind[:, None], _NUM_INTERESTS, axis=1)
    shoppers = _Shoppers(
        interests=_nearby_kinds(rng, assortment, home),
        style=rng.integers(NUM_STYLES, size=num_shoppers),
        last_item=_look(rng, assortment, first_kind, 1)[:, 0],
    )
    taken = np.empty((num_shoppers, num_steps), np.int32)
    for step in range(num_steps):
        kind = _choose_kind(rng, assortment, companions, shoppers)
        item = _choose_item(rng, assortment, shoppers, kind, taken[:, :step])
        taken[:, step] = shoppers.last_item = item
        _drift(rng, assortment, shoppers)
    return taken


def _nearby_kinds(rng: np.random.Generator, assortment: Assortment, kinds: NDArray[np.integer]) -> NDArray[np.int64]:
    """For each kind another one, int64 of the same shape: mostly of its department, otherwise any, by popularity."""
    neighbour = kinds - kinds % KINDS_PER_DEPARTMENT + rng.integers(KINDS_PER_DEPARTMENT, size=kinds.shape)
    anywhere = rng.choice(NUM_KINDS, kinds.shape, p=assortment.kind_popularity)
    return np.where(rng.random(kinds.shape) < _NEARBY_SHARE, neighbour, anywhere)


def _choose_kind(
    rng: np.random.Generator, assortment: Assortment, companions: NDArray[np.int64], shoppers: _Shoppers
) -> NDArray[np.int64]:
    """The kind each shopper turns to next: int64 [n]."""
    everyone = np.arange(len(shoppers.style))
    interest = rng.choice(_NUM_INTERESTS, len(everyone), p=zipf(_NUM_INTERESTS, 0.7))
    companion = rng.choice(_NUM_COMPANIONS, len(everyone), p=zipf(_NUM_COMPANIONS, 1.5))
    return np.where(
        rng.random(len(everyone)) < _COMPANION_SHARE,
        companions[assortment.kind[shoppers.last_item], companion],
        shoppers.interests[everyone, interest],
    )


def _choose_item(
    rng: np.random.Generator,
    assortment: Assortment,
    shoppers: _Shoppers,
    kind: NDArray[np.int64],
    taken: NDArray[np.int32],
) -> NDArray[np.int64]:
    """The item of `kind` that suits each shopper best: int64 [n]. taken int32 [n, step] is what each owns already."""
    looks = _look(rng, assortment, kind, _NUM_LOOKS)  # [n, looks]
    appeal = rng.gumbel(size=looks.shape)
    appeal += _STYLE_WEIGHT * (assortment.style[looks] == shoppers.style[:, None])
    appeal += _BRAND_WEIGHT * (assortment.brand[looks] == assortment.brand[shoppers.last_item][:, None])
    owned = (looks[:, :, None] == taken[:, None, :]).any(axis=2)
    appeal[owned] = -np.inf
    chosen: NDArray[np.int64] = looks[np.arange(len(looks)), appeal.argmax(axis=1)]
    return chosen


def _look(
    rng: np.random.Generator, assortment: Assortment, kind: NDArray[np.integer], num_looks: int
) -> NDArray[np.int64]:
    """Items of each kind drawn by popularity: int64 [n, num_looks]. Kind k spans k..k+1 of the summed popularity."""
    reached = np.cumsum(assortment.popularity)
    places = np.searchsorted(reached, kind[:, None] + rng.random((len(kind), num_looks)), side="right")
    first = np.searchsorted(assortment.kind, kind, side="left")[:, None]
    last = np.searchsorted(assortment.kind, kind, side="right")[:, None] - 1
    return np.clip(places, first, last)  # a draw at the very edge of a kind may round into its neighbour


def _drift(rng: np.random.Generator, assortment: Assortment, shoppers: _Shoppers) -> None:
    """Replace one interest of some shoppers by a kind near what they took last. Changes `shoppers`."""
    drifting = np.flatnonzero(rng.random(len(shoppers.style)) < _DRIFT_SHARE)
    slot = rng.integers(_NUM_INTERESTS, size=len(drifting))
    last_kind = assortment.kind[shoppers.last_item[drifting]]
    shoppers.interests[drifting, slot] = _nearby_kinds(rng, assortment, last_kind)
