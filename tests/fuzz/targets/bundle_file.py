"""bundle.toml: written by hand, or by a tool that meant another service."""

import random
from functools import partial
from pathlib import Path
from typing import Any

from recall_service.errors import SetupError
from recall_service.serving.bundles.bundle_file import BUNDLE_FILE, read_bundle_file
from tests.fuzz.hostile import Hostile, refused
from tests.fuzz.mutate_values import spoilt_toml

_DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"bundle": {"name": "tiny"}, "sid": {"tokens": ["<a_{code}>", "<b_{code}>"]}},
    {
        "bundle": {"name": "tiny", "version": "2026-01"},
        "model": {"path": "model", "dtype": "float32"},
        "catalog": {"path": "catalog.csv", "codebook_sizes": [4, 5, 6]},
        "sid": {"tokens": ["<a_{code}>", "<b_{code}>", "<c_{code}>"]},
        "search": {
            "score_space": "CATALOG",
            "beam_width": 12,
            "max_beam_width": 64,
            "num_items": 10,
            "max_num_items": 64,
            "proven_row_budget": 1_000,
        },
        "prompt": {
            "prefix": "<bos>",
            "item": "({sid})",
            "separator": [5, 7],
            "suffix": "",
            "max_history": 6,
            "unknown_items": "refuse",
            "empty_history": "serve",
        },
    },
)


class Target:
    """A bundle file, or one line of error."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def make(self, generator: random.Random) -> Hostile:
        return Hostile(BUNDLE_FILE, spoilt_toml(generator, generator.choice(_DOCUMENTS)))

    def check(self, hostile: Hostile) -> None:
        (self._directory / BUNDLE_FILE).write_bytes(hostile.data)
        refused((SetupError,), partial(read_bundle_file, self._directory))

    def close(self) -> None:
        pass
