"""Keeps the garbage collector out of the way of requests.

Python now and then looks through all objects for unreachable cycles, and nothing else runs meanwhile: 240 ms for the
450,000 objects that a loaded server is made of, most of them torch's. None of those ever becomes garbage, so once they
are all there they are put where the collector does not look. What is left to look through is what requests made: 2 ms
with 64 MiB of cached answers, at most. Its thresholds stay as they are: fewer passes over young objects are longer.
Knows nothing of what the objects are.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settled_heap() -> Iterator[None]:
    """While it lasts, what is alive now is not looked at. What of it is no longer referred to is freed all the same."""
    gc.collect()  # or what is garbage already would stay for good
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
