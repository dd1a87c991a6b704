"""Rows of a catalogue of any size, of which one part is the same at every size: the part that searches are timed on.

Every second first code has `children` second codes, and each of these `leaves` third ones. All other items stand on the
other first codes, at random, and each of those has one. So the root, and whatever a search visits, has as many children
at a million items as at a hundred million, in arrays that are a hundred times as long.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from item_catalog.sid import SidLayout

SIDS_FILE, IDS_FILE = "sids.npy", "item_ids.npy"
ID_STEP = 7  # ids are not their own ranks


class Shape(NamedTuple):
    """Codes per level, of three, and the regular part."""

    codebook_size: int
    num_visited: int
    children: int
    leaves: int

    @property
    def layout(self) -> SidLayout:
        """Three levels."""
        return SidLayout((self.codebook_size,) * 3)

    @property
    def visited_codes(self) -> NDArray[np.uint16]:
        """First codes of the regular part, every second one."""
        return np.arange(0, 2 * self.num_visited, 2, dtype=np.uint16)

    @property
    def min_items(self) -> int:
        """The regular part, and an item for every other first code."""
        return self.num_visited * self.children * self.leaves + self.codebook_size - self.num_visited


LARGE = Shape(codebook_size=8_192, num_visited=3_840, children=64, leaves=4)


def write_rows(directory: Path, shape: Shape, num_items: int, *, shuffled_ids: bool) -> None:
    """Write SIDs uint16 [num_items, 3] in no order, and ids int64 [num_items], ascending or shuffled, as .npy."""
    if num_items < shape.min_items:
        raise ValueError(f"num_items: {num_items:,}; give at least {shape.min_items:,}")
    rng = np.random.default_rng(0)
    np.save(directory / SIDS_FILE, _sids(shape, num_items, rng), allow_pickle=False)
    item_ids = np.arange(num_items) * ID_STEP
    if shuffled_ids:
        rng.shuffle(item_ids)
    np.save(directory / IDS_FILE, item_ids, allow_pickle=False)


def read_rows(directory: Path) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """What `write_rows` wrote, in memory."""
    sids, item_ids = (np.load(directory / name, allow_pickle=False) for name in (SIDS_FILE, IDS_FILE))
    return sids, item_ids


def _sids(shape: Shape, num_items: int, rng: np.random.Generator) -> NDArray[np.uint16]:
    sids = rng.integers(0, shape.codebook_size, (num_items, 3), dtype=np.uint16)
    others = np.setdiff1d(np.arange(shape.codebook_size, dtype=np.uint16), shape.visited_codes)
    sids[:, 0] = others[sids[:, 0] % len(others)]
    sids[: len(others), 0] = others
    regular = _regular_sids(shape)
    rows = np.linspace(len(others), num_items - 1, len(regular)).astype(np.int64)
    sids[rows] = rng.permutation(regular)
    return sids


def _regular_sids(shape: Shape) -> NDArray[np.uint16]:
    """Second and third codes lie far apart in their codebooks, and elsewhere for every first code."""
    first, second, third = np.indices((shape.num_visited, shape.children, shape.leaves)).reshape(3, -1)
    second_step, third_step = shape.codebook_size // shape.children, shape.codebook_size // shape.leaves
    codes = [
        shape.visited_codes[first],
        second * second_step + first % second_step,
        third * third_step + first % third_step,
    ]
    return np.stack(codes, axis=1).astype(np.uint16)
