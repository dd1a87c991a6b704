"""Checks are run each to its end, whatever becomes of the others; those of the whole engine hold on the CPU too."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_engine_cases
from benchmarks.gpu_suite import CHECKOUT, Check, run_cases, run_suites, suites
from recall_service.engine.fixed_steps import FixedKernels
from recall_service.engine.kernels.fixed import REFERENCE_KERNELS

CPU = torch.device("cpu")
WELL_AND_ILL = """
def well(device):
    assert device.type == "cpu"
def ill(device):
    assert device.type == "cuda", f"on {device}"
CASES = {"well": well, "ill": ill, "well again": well}
"""
DEADLY = """
import os
CASES = {"well": lambda device: None, "deadly": lambda device: os._exit(3)}
"""


def test_every_suite_runs_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("well_and_ill", WELL_AND_ILL), ("deadly", DEADLY)):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    outcomes = run_suites(["well_and_ill", "deadly", "missing"], "cpu", timeout_seconds=100.0)
    well, ill, again = outcomes["well_and_ill"]
    assert (well.case, well.error, again.case, again.error) == ("well", None, "well again", None)
    assert ill.error is not None
    assert ill.error.endswith("AssertionError: on cpu")
    assert "well_and_ill.py" in ill.error
    before, whole = outcomes["deadly"]
    assert (before.case, before.error) == ("well", None)
    assert "ended with 3" in str(whole.error)
    (whole,) = outcomes["missing"]
    assert "No module named 'missing'" in str(whole.error)


def test_a_suite_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_until_stopped(command: list[str], *, timeout: float, **options: Any) -> None:
        done, begun = b'{"case": "done", "error": null, "seconds": 1.0}\n', b'{"case": "cut'
        raise subprocess.TimeoutExpired(command, timeout, output=done + begun)

    monkeypatch.setattr(subprocess, "run", run_until_stopped)
    done, whole = run_suites(["endless"], "cpu", timeout_seconds=15.0)["endless"]
    assert (done.case, done.error) == ("done", None)
    assert whole.error == "stopped after 15 seconds"


def test_a_device_that_takes_no_more_work_ends_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: torch.device) -> None:
        raise RuntimeError("illegal access")

    ran = []
    cases: dict[str, Check] = {"first": ran.append, "second": refuse, "third": ran.append}
    monkeypatch.setattr("benchmarks.gpu_suite._synchronise", refuse)
    (outcome, rest) = run_cases(cases, CPU)
    assert outcome.case == "first"
    assert "illegal access" in str(outcome.error)
    assert "after first" in str(rest.error)
    assert ran == [CPU]


def test_all_cases_of_kernels_and_engine_are_found() -> None:
    cases = {f"tests.engine.kernels.{path.stem}" for path in Path(CHECKOUT, "tests/engine/kernels").glob("cases_*.py")}
    assert {*cases, "benchmarks.gpu_engine_cases"} == set(suites())


def test_the_whole_check_needs_nothing_of_the_service() -> None:
    """As on a machine with torch, triton, numpy, safetensors and transformers alone."""
    foreign = (
        *("pytest", "hypothesis", "rich", "pyarrow", "xxhash", "grpc", "redis", "pydantic", "prometheus_client"),
        *("cachetools", "structlog", "typer"),
    )
    script = f"import sys; sys.modules |= dict.fromkeys({foreign!r}); import benchmarks.gpu_check"
    script += "".join(f"; import {module}" for module in suites())
    subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, check=True)


@pytest.mark.parametrize("case", gpu_engine_cases.CASES)
def test_the_engine_at_fixed_shapes_answers_as_the_plain_one(case: str) -> None:
    gpu_engine_cases.CASES[case](CPU)


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(*arguments: Any) -> torch.Tensor:
        """Attends to the prompt and the row itself, and to no ancestor between."""
        *others, slots = arguments
        return REFERENCE_KERNELS.beam_attention(*others, slots[:, -1:])

    kernels = FixedKernels(forgetful, REFERENCE_KERNELS.selection)
    monkeypatch.setattr(gpu_engine_cases, "kernels_for", lambda device: kernels)
    with pytest.raises(AssertionError, match=r"Not equal to tolerance|not -|in one answer alone"):
        gpu_engine_cases.CASES["constrained, VOCABULARY scores: each alone"](CPU)
