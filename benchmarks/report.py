"""What every benchmark says of itself: the machine, the commit, and one JSON line at the end of stdout."""

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch


def hardware() -> dict[str, Any]:
    """Model and number of CPUs, the accelerator if there is one, and the torch that ran on them."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
    }


def commit() -> str | None:
    """The commit of the checkout, with "-dirty" when files differ from it; None outside a checkout."""
    git = shutil.which("git")
    if git is None:
        return None
    described = subprocess.run(  # noqa: S603  fixed arguments
        [git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or None


def print_json_line(document: dict[str, Any]) -> None:
    """One line of JSON, for whoever reads the last line of stdout."""
    print(json.dumps(document), flush=True)


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
