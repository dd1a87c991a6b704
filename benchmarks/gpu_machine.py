"""Which GPU there is, with what around it; or why there is none to use."""

import importlib.util
import shutil
import subprocess
from typing import Any

import torch

from benchmarks.report import hardware


def why_unfit() -> str | None:
    """Why nothing can be run on a GPU here, in one sentence; None where something can."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device; run it where there is an NVIDIA GPU"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed; install the one that belongs to this torch"
    return None


def gpu_hardware() -> dict[str, Any]:
    """What `hardware` says, with driver, CUDA and triton."""
    import triton

    return hardware() | {"driver": _driver(), "cuda": torch.version.cuda, "triton": triton.__version__}


def _driver() -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    asked = subprocess.run(  # noqa: S603  fixed arguments
        [tool, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or None
