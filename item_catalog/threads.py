"""One function over many parts of arrays, on every core: numpy lets go of the interpreter while it works on a part."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SLICE_LEN = 1 << 18  # of words: what a core keeps in its cache, and enough for one call of numpy

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def in_threads(function: Callable[[_Part], _Result], parts: Iterable[_Part]) -> list[_Result]:
    """`function` of every part, in the order of the parts. The first error is raised once all that runs has ended."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="catalogue") as pool:
        return list(pool.map(function, parts))


def slices(count: int, length: int = SLICE_LEN) -> list[slice]:
    """0 to count - 1 in slices of `length`, of which the last may be shorter."""
    return [slice(first, min(first + length, count)) for first in range(0, count, length)]
