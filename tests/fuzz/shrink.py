"""A failing input, made as short as it quickly can be."""

import time
from collections.abc import Callable

from tests.fuzz.hostile import Hostile

_SECONDS = 1.0


def shrunk(hostile: Hostile, fails_alike: Callable[[Hostile], bool]) -> Hostile:
    """`hostile` without the parts that it fails without. Halves are tried first, single bytes last."""
    deadline = time.monotonic() + _SECONDS
    data = hostile.data
    size = len(data) // 2
    while size:
        start = 0
        while start < len(data):
            if time.monotonic() > deadline:
                return hostile._replace(data=data)
            shorter = data[:start] + data[start + size :]
            if fails_alike(hostile._replace(data=shorter)):
                data = shorter
            else:
                start += size
        size //= 2
    return hostile._replace(data=data)
