"""Keeps torch to one thread while the demo's own small model runs outside the server."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for torch inside, and its own number afterwards.

    At this size a second thread brings half as much again on an idle machine, but on a busy one the threads wait for
    each other at the end of every operation, and several times less gets done.
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
