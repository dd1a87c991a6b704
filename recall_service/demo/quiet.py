"""Keeps transformers' own progress bars from drawing over ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging


@contextmanager
def no_transformers_bars() -> Iterator[None]:
    """Without bars of transformers inside, and as it was afterwards."""
    had_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if had_bars:
            logging.enable_progress_bar()
