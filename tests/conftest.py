"""What every room's tests may use."""

import gc
import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported: its kernels then run on the CPU

# An example that takes long says that the machine was busy, and nothing of what is tested.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")

_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

_settled: dict[str, Path] = {}  # the room whose tests are being run


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data beside the checkout; the test is skipped where it is absent."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"no {_SHARED_DATA}")
    return _SHARED_DATA


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the first test of a room, put aside what others imported and left.

    One full pass of the collector over all of it takes 0.2 to 0.4 s, more than many delays that are measured.
    """
    if item.path.parent != _settled.get("room"):
        _settled["room"] = item.path.parent
        gc.collect()
        gc.freeze()
