"""Embeddings -> SIDs by residual k-means: each level clusters what the levels before it left.

Codebooks are trained on a sample in memory; then all items are given their codes in one pass, a chunk at a time. The
embeddings are read twice. How codes are kept from filling up stands in `balanced_codes`. This module opens no file.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.assigning.balanced_codes import balancing_prices, capacity_of, codes_within
from item_catalog.assigning.distinct_codes import DistinctCodes
from item_catalog.assigning.embeddings import Embeddings
from item_catalog.assigning.kmeans import Points, Prices, cheapest_codes, moved_centroids, starting_centroids
from item_catalog.assigning.sid_quality import SidQuality, sid_quality
from item_catalog.errors import CatalogError
from item_catalog.sid import SidLayout

_BALANCING_ROUNDS = 10  # centroids move to where the items are that found their code full
_RAISES_PER_ROUND = 30
_FINAL_RAISES = 300

_Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AssignmentSettings:
    """What SIDs to make, and how.

    seed: decides the sample and where centroids start.
    iterations: of k-means, at most, before balancing.
    sample: items that codebooks are trained on. 256 for each code is plenty, says FAISS's ClusteringParameters.
    balance: how many times its fair share of the items a code may hold at most, at each level; infinite: no limit.
    distinct: give the last level's next nearest free code instead of one SID to two items; it has no limit then.

    Raises CatalogError naming the field, the value and the remedy.
    """

    layout: SidLayout
    seed: int = 0
    iterations: int = 20
    sample: int = 200_000
    balance: float = 2.0
    distinct: bool = False

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise CatalogError(f"seed: {self.seed}; give 0 or more")
        if self.iterations < 1:
            raise CatalogError(f"iterations: {self.iterations}; give at least 1")
        if not self.balance >= 1:
            raise CatalogError(f"balance: {self.balance}; give at least 1, or inf for no limit")
        most = max(self.layout.codebook_sizes)
        if self.sample < most:
            raise CatalogError(f"sample: {self.sample} items for {most} codes; give at least one for each")
        if self.distinct and math.prod(self.layout.codebook_sizes) >= 1 << 63:
            raise CatalogError(
                f"distinct: codebooks of {self.layout.codebook_sizes} have 2**63 SIDs or more; give less"
            )


class SidAssignment(NamedTuple):
    """SIDs in the order of the embeddings, int32 [items, levels], and what they are worth."""

    sids: NDArray[np.int32]
    quality: SidQuality


def assign_sids(
    embeddings: Embeddings, settings: AssignmentSettings, announce: _Announce | None = None
) -> SidAssignment:
    """Train codebooks and give every item its codes; the same input and settings give the same SIDs on one machine.

    `announce` is told each step. Raises CatalogError when there are fewer items than codes at a level, when all
    embeddings are equal, or when one is not finite.
    """
    announce = announce or (lambda _: None)
    num_items = len(embeddings.item_ids)
    for level, size in enumerate(settings.layout.codebook_sizes):
        if num_items < size:
            raise CatalogError(f"level {level}: {size} codes for {num_items} items; give fewer codes, or more items")
    random = np.random.default_rng(settings.seed)
    announce(f"reading {num_items:,} embeddings")
    scale, sample = _survey(embeddings, _sampled_rows(num_items, settings.sample, random))
    codebooks = _trained(sample, settings, random, announce)
    announce(f"giving {num_items:,} items their codes")
    return _assigned(embeddings, scale, codebooks, settings)


class _Scale(NamedTuple):
    """What brings every number of the embeddings into -1..1, so that no square is out of float32's range."""

    middles: NDArray[np.float64]  # [dims]
    half_range: float

    def points(self, embeddings: NDArray[np.float64]) -> Points:
        return ((embeddings - self.middles) / self.half_range).astype(np.float32)


class _Codebook(NamedTuple):
    """One level: no more centroids than the level has codes, and fewer where the sample had fewer different points."""

    centroids: Points
    prices: Prices


def _sampled_rows(num_items: int, sample: int, random: np.random.Generator) -> NDArray[np.int64]:
    if sample >= num_items:
        return np.arange(num_items)
    return np.sort(random.choice(num_items, sample, replace=False, shuffle=False))


def _survey(embeddings: Embeddings, sampled_rows: NDArray[np.int64]) -> tuple[_Scale, Points]:
    """The first pass: the scale of all embeddings, and the sampled ones as points."""
    low, high = np.full((2, embeddings.dims), [[np.inf], [-np.inf]])
    parts = []
    start = 0
    for chunk in embeddings.chunks():
        low, high = np.minimum(low, chunk.min(axis=0)), np.maximum(high, chunk.max(axis=0))
        first, last = np.searchsorted(sampled_rows, (start, start + len(chunk)))
        parts.append(chunk[sampled_rows[first:last] - start])
        start += len(chunk)
    half_range = float((high / 2 - low / 2).max())
    if not half_range:
        raise CatalogError(f"all {start:,} embeddings are equal; give ones that tell items apart")
    scale = _Scale(low / 2 + high / 2, half_range)
    return scale, np.concatenate([scale.points(part) for part in parts])


def _trained(
    sample: Points, settings: AssignmentSettings, random: np.random.Generator, announce: _Announce
) -> list[_Codebook]:
    codebooks = []
    residuals = sample
    for level, size in enumerate(settings.layout.codebook_sizes):
        announce(f"level {level}: training {size:,} codes on {len(sample):,} items")
        codebook = _trained_level(residuals, size, settings, random)
        residuals = residuals - codebook.centroids[cheapest_codes(residuals, *codebook)]
        codebooks.append(codebook)
    return codebooks


def _trained_level(
    points: Points, num_codes: int, settings: AssignmentSettings, random: np.random.Generator
) -> _Codebook:
    centroids = moved_centroids(points, starting_centroids(points, num_codes, random), settings.iterations)
    if math.isinf(settings.balance):
        return _Codebook(centroids, np.zeros(len(centroids), np.float32))
    capacity = capacity_of(len(points), len(centroids), settings.balance)

    def pricing(points: Points, centroids: Points) -> Prices:
        return balancing_prices(points, centroids, capacity, _RAISES_PER_ROUND)

    centroids = moved_centroids(points, centroids, _BALANCING_ROUNDS, pricing)
    return _Codebook(centroids, balancing_prices(points, centroids, capacity, _FINAL_RAISES))


def _assigned(
    embeddings: Embeddings, scale: _Scale, codebooks: list[_Codebook], settings: AssignmentSettings
) -> SidAssignment:
    """The second pass."""
    num_items = len(embeddings.item_ids)
    rooms = [_room(num_items, codebook, settings.balance) for codebook in codebooks]
    distinct = DistinctCodes(codebooks[-1].centroids) if settings.distinct else None
    sids = np.empty((num_items, len(codebooks)), np.int32)
    total = np.zeros(embeddings.dims)
    energies = np.zeros(1 + len(codebooks))  # squared lengths, before and after each level
    start = 0
    for chunk in embeddings.chunks():
        residuals = scale.points(chunk)
        rows = slice(start, start + len(chunk))
        total += residuals.sum(axis=0, dtype=np.float64)
        energies[0] += _energy(residuals)
        prefixes = np.zeros(len(chunk), np.int64)
        for level, (codebook, room) in enumerate(zip(codebooks, rooms, strict=True)):
            if distinct and level == len(codebooks) - 1:
                codes = distinct.give(prefixes, residuals)
            else:
                codes = codes_within(residuals, *codebook, room)
            sids[rows, level] = codes
            prefixes = prefixes * len(codebook.centroids) + codes
            residuals = residuals - codebook.centroids[codes]
            energies[level + 1] += _energy(residuals)
        start += len(chunk)
    spread = energies[0] - total @ total / num_items
    relative_residuals = tuple(np.sqrt(energies[1:] / spread).tolist())
    return SidAssignment(sids, sid_quality(settings.layout, sids, relative_residuals))


def _room(num_items: int, codebook: _Codebook, balance: float) -> NDArray[np.int64]:
    num_codes = len(codebook.centroids)
    return np.full(num_codes, capacity_of(num_items, num_codes, balance))


def _energy(points: Points) -> float:
    return float(np.square(points, dtype=np.float64).sum())
