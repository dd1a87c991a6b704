"""Everything that only an NVIDIA GPU can show: kernels and engine against their references, then the benchmark.

Needs torch, triton, numpy, safetensors and transformers, and no network. The checks are the dictionaries CASES of the
kernels' tests and of `benchmarks.gpu_engine_cases`; the benchmark is `benchmarks.gpu`, run even where checks fail. Exit
status 1 when something failed. Without a GPU this says so, and is done.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu import measure_gpu, parser, say
from benchmarks.gpu_machine import gpu_hardware, why_unfit
from benchmarks.gpu_suite import Outcome, run_suites, suites
from benchmarks.report import commit, print_json_line

_SHARE_OF_CHECKS = 0.5  # of the time; what is left of it is the benchmark's


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then measure; the last line of stdout is the JSON."""
    given = parser("python -m benchmarks.gpu_check", __doc__).parse_args(arguments)
    if (reason := why_unfit()) is not None:
        print(f"Nothing was checked on a GPU: {reason}.")
        print_json_line({"benchmark": "gpu_check", "skipped": reason, "commit": commit()})
        return 0
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # its default so far; unset, Triton 3.9 warns
    deadline = time.monotonic() + given.seconds
    say("checks, all suites at once; most of the time goes into compiling kernels")
    outcomes = run_suites(suites(), "cuda", _SHARE_OF_CHECKS * given.seconds)
    print_outcomes(outcomes)
    failed_checks = failures(outcomes)
    document = {
        "benchmark": "gpu_check",
        "checks": {suite: len(of_suite) for suite, of_suite in outcomes.items()},
        "failed_checks": failed_checks,
    }
    document |= measure_gpu(deadline, quick=given.quick)
    print_json_line(document | {"hardware": gpu_hardware(), "commit": commit()})
    return 1 if failed_checks or document["failed"] else 0


def print_outcomes(outcomes: Mapping[str, Sequence[Outcome]]) -> None:
    """Every check by name, then what each failed one raised."""
    for suite, of_suite in outcomes.items():
        print(suite)
        for outcome in of_suite:
            print(f"  {'ok' if outcome.error is None else 'FAILED':6}  {outcome.seconds:6.2f} s  {outcome.case}")
    for failure in failures(outcomes):
        print(f"\n{failure['suite']}: {failure['case']}\n{failure['error']}")
    print()


def failures(outcomes: Mapping[str, Sequence[Outcome]]) -> list[dict[str, Any]]:
    """Which checks raised what."""
    return [
        {"suite": suite, "case": outcome.case, "error": outcome.error}
        for suite, of_suite in outcomes.items()
        for outcome in of_suite
        if outcome.error is not None
    ]


if __name__ == "__main__":
    sys.exit(main())
