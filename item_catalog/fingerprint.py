"""Fingerprints of arrays, and the version that follows from them: equal content has an equal version.

The checksums find damage and name content. They are no defence against somebody who forges a catalogue on purpose.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from item_catalog.sid import SidLayout


class ArrayFingerprint(NamedTuple):
    """What identifies an array: its numpy dtype string, its shape, and the xxh3_128 of its bytes in hexadecimal."""

    dtype: str
    shape: tuple[int, ...]
    xxh3_128: str


def fingerprint(array: NDArray[np.generic]) -> ArrayFingerprint:
    """Read the whole array once. `array` must be C-contiguous."""
    return ArrayFingerprint(array.dtype.str, array.shape, xxhash.xxh3_128_hexdigest(array.data))


def content_version(layout: SidLayout, fingerprints: Mapping[str, ArrayFingerprint]) -> str:
    """The version of a catalogue with these arrays: 32 hexadecimal digits."""
    content = {"codebook_sizes": layout.codebook_sizes, "arrays": fingerprints}
    return xxhash.xxh3_128_hexdigest(json.dumps(content, sort_keys=True).encode())
