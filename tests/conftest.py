"""What every room's tests may use."""

import os
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is first imported: its kernels then run on the CPU

_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data beside the checkout; the test is skipped where it is absent."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"no {_SHARED_DATA}")
    return _SHARED_DATA
