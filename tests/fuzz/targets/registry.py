"""Which targets there are, and how many of all inputs each gets: cheap ones the most."""

import importlib
from pathlib import Path

from tests.fuzz.hostile import Target

SHARES = {
    "cached_answer": 0.36,
    "wire": 0.2,
    "request_log": 0.12,
    "client": 0.1,
    "bundle_file": 0.08,
    "source": 0.06,
    "settings": 0.04,
    "catalog": 0.02,
    "bundle": 0.02,
}


def open_target(name: str, directory: Path) -> Target:
    """Only its own module is imported: some need seconds of imports."""
    target: Target = importlib.import_module(f"tests.fuzz.targets.{name}").Target(directory)
    return target
