"""Runs dictionaries of checks, each in a process of its own, and says how every check ended.

A check is a function of a device that raises when something is wrong. A process of their own, because one illegal
access makes a GPU useless to the process it happened in; several at once, because most of the time goes into compiling.

As a program it runs one dictionary, and prints one line of JSON for each check: MODULE DEVICE.
"""

import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

CHECKOUT = Path(__file__).resolve().parents[1]
_KERNEL_CASES = "tests/engine/kernels"
_ENGINE_CASES = "benchmarks.gpu_engine_cases"

Check = Callable[[torch.device], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended. error: what was raised and where, None when nothing was."""

    case: str
    error: str | None
    seconds: float


def suites() -> list[str]:
    """Every module that holds checks in a dictionary CASES."""
    paths = sorted((CHECKOUT / _KERNEL_CASES).glob("cases_*.py"))
    return [*(".".join(path.relative_to(CHECKOUT).with_suffix("").parts) for path in paths), _ENGINE_CASES]


def run_suites(modules: Sequence[str], device: str, timeout_seconds: float) -> dict[str, list[Outcome]]:
    """The outcomes of every module's checks, all modules at the same time."""
    with ThreadPoolExecutor(len(modules)) as pool:
        outcomes = pool.map(lambda module: _run_apart(module, device, timeout_seconds), modules)
        return dict(zip(modules, outcomes, strict=True))


def run_cases(cases: Mapping[str, Check], device: torch.device) -> Iterator[Outcome]:
    """Run every check, whatever the others did, for as long as the device obeys."""
    for case, check in cases.items():
        start = time.perf_counter()
        error = _error_of(check, device)
        yield Outcome(case, error, time.perf_counter() - start)
        if error is not None and _error_of(_synchronise, device) is not None:
            yield Outcome("all after it", f"not run: the device takes no more work from this process after {case}", 0.0)
            return


def main(module: str, device: str) -> None:
    """Run one module's checks and print their outcomes as they come."""
    torch.set_float32_matmul_precision("highest")
    for outcome in run_cases(importlib.import_module(module).CASES, torch.device(device)):
        print(json.dumps(asdict(outcome)), flush=True)


def _run_apart(module: str, device: str, timeout_seconds: float) -> list[Outcome]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.gpu_suite", module, device]
    try:
        process = subprocess.run(  # noqa: S603  ourselves
            command, cwd=CHECKOUT, capture_output=True, text=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired as expired:
        printed, ending = _text(expired.stdout), f"stopped after {timeout_seconds:.0f} seconds"
    else:
        printed, ending = process.stdout, ""
        if process.returncode:
            ending = f"ended with {process.returncode}: {process.stderr.strip()}"
    outcomes = [Outcome(**json.loads(line)) for line in printed.splitlines() if line.startswith('{"case"')]
    if ending:
        outcomes.append(Outcome("the whole of it", ending, time.perf_counter() - start))
    return outcomes


def _text(printed: bytes | str | None) -> str:
    """What a process had printed when its time ran out; its last line may be cut off."""
    text = printed.decode() if isinstance(printed, bytes) else printed or ""
    return text[: text.rfind("\n") + 1]


def _error_of(check: Check, device: torch.device) -> str | None:
    """What a check raised, and where; work that it left in the device's queue counts as its own."""
    try:
        check(device)
        _synchronise(device)
    except Exception as error:  # noqa: BLE001  whatever it is, the other checks are still of interest
        return "".join(traceback.format_exception(error, limit=-3)).replace(f"{CHECKOUT}{os.sep}", "").strip()
    return None


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main(*sys.argv[1:])
