"""The stages of one cell on a device: whole searches, their steps by two clocks, and selection alone."""

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.arithmetic import Arithmetic, decode_arithmetic, prefill_arithmetic
from benchmarks.device_clock import DeviceClock
from benchmarks.gpu_workload import CONSTRAINED, FREE, MODES, NEW_TOKENS, Cell, GpuWorkload
from recall_service.engine.engine import Completion, StepReport
from recall_service.engine.fixed_selection import select_fixed
from recall_service.engine.request import BeamRequest, ScoreSpace
from recall_service.errors import RecallError

_WARM_UPS = 2
_HEAD_START = 1.2  # times a whole search: the host's part of it is less
_SELECTION_HEAD_START = 5.0  # milliseconds
_PRODUCT_SIZE, _COPY_BYTES = 8192, 2 << 30


class Ceilings(NamedTuple):
    """What the device does when nothing is in the way: operations a second of a product, bytes a second of a copy."""

    product_tflops: float
    copy_gigabytes_per_second: float


class DeviceSteps(NamedTuple):
    """Milliseconds of each step. Where the host was not ahead all along, gaps of its making may be among them."""

    milliseconds: list[float]
    host_was_ahead: bool


def measure_ceilings(
    clock: DeviceClock, dtype: torch.dtype, size: int = _PRODUCT_SIZE, copied: int = _COPY_BYTES, repeats: int = 10
) -> Ceilings:
    """A product of two random matrices [size, size], and a copy of `copied` bytes, read and written."""
    left, right = (torch.randn(size, size, device=clock.device).to(dtype) for _ in range(2))
    product = torch.empty_like(left)
    source, target = (torch.randint(256, (copied,), dtype=torch.uint8, device=clock.device) for _ in range(2))
    runs = []
    for _ in range(repeats + _WARM_UPS):
        clock.mark()
        torch.matmul(left, right, out=product)
        clock.mark()
        target.copy_(source)
        clock.mark()
        runs.append(clock.take_laps())
    of_product, of_copy = _medians(runs[_WARM_UPS:])
    return Ceilings(2 * size**3 / of_product / 1e9, 2 * copied / of_copy / 1e6)


def measure_cell(
    work: GpuWorkload, cell: Cell, clock: DeviceClock, ceilings: Ceilings, repeats: int
) -> list[dict[str, Any]]:
    """One result for each mode; both take turns, on one warm engine. Times are medians, in milliseconds."""
    searches = _Searches(work, cell, clock)
    whole: dict[str, list[float]] = {mode: [] for mode in MODES}
    for repeat in range(-_WARM_UPS, repeats):
        for mode in MODES:
            taken = searches.whole(mode)
            whole[mode] += [taken] if repeat >= 0 else []
    milliseconds = {mode: statistics.median(whole[mode]) for mode in MODES}
    results = []
    for mode in MODES:
        by_host = _medians([searches.steps_by_host(mode) for _ in range(repeats)])
        head_start = _HEAD_START * milliseconds[mode]
        searches.steps_by_device(mode, head_start)  # so far ahead, the host needs more pinned memory than before
        runs = [searches.steps_by_device(mode, head_start) for _ in range(repeats)]
        by_device = DeviceSteps(_medians([run.milliseconds for run in runs]), all(run.host_was_ahead for run in runs))
        results.append(
            cell._asdict()
            | {"mode": mode, "milliseconds": milliseconds[mode]}
            | {"steps": _steps(work, cell, by_host, by_device.milliseconds, ceilings)}
            | {"host_was_ahead": by_device.host_was_ahead}
            | {"host_gap_share": 1 - sum(by_device.milliseconds) / milliseconds[mode]}
            | {"selection_milliseconds": measure_selection(work, cell, mode, clock, repeats)}
            | {"constraint_cost_percent": None}
        )
    constrained = results[MODES.index(CONSTRAINED)]
    constrained["constraint_cost_percent"] = 100 * (milliseconds[CONSTRAINED] / milliseconds[FREE] - 1)
    return results


def measure_selection(work: GpuWorkload, cell: Cell, mode: str, clock: DeviceClock, repeats: int) -> list[float]:
    """Each level's selection alone, on random logits and random nodes of that depth."""
    config, device = work.decoder.config, clock.device
    constraint = work.constraint if mode == CONSTRAINED else None
    medians = []
    for level in range(NEW_TOKENS):
        num_rows = cell.batch * (cell.width if level else 1)
        logits = torch.randn(num_rows, config.vocab_size, device=device).to(work.decoder.dtype)
        scores = torch.randn(num_rows, device=device) - 10
        nodes = torch.randint(work.trie.num_nodes(level), (num_rows,), device=device)
        laps = []
        for repeat in range(-_WARM_UPS, repeats):
            clock.synchronise()
            clock.give_head_start(_SELECTION_HEAD_START)
            clock.mark()
            select_fixed(
                logits,
                scores,
                nodes,
                num_requests=cell.batch,
                level=level,
                width=cell.width,
                constraint=constraint,
                score_space=ScoreSpace.VOCABULARY,
                with_ranks=False,
                kernels=work.kernels.selection,
            )
            clock.mark()
            laps += clock.take_laps() if repeat >= 0 else []
        medians.append(statistics.median(laps))
    return medians


class _Searches:
    """Searches of one cell on one engine, each of prompts that were never asked before."""

    def __init__(self, work: GpuWorkload, cell: Cell, clock: DeviceClock) -> None:
        self._work, self._cell, self._clock = work, cell, clock
        self._engine = work.engine_for(cell)
        self._num_asked = 0

    def whole(self, mode: str) -> float:
        """Milliseconds from requests to results on the host."""
        requests = self._next(mode)
        start = time.perf_counter()
        self._engine.search(requests)
        return 1000 * (time.perf_counter() - start)

    def steps_by_host(self, mode: str) -> list[float]:
        """Milliseconds of each step from its call until the device is done."""
        self._submit(mode)
        laps, completed = [], []
        for _ in range(NEW_TOKENS):
            self._clock.synchronise()
            start = time.perf_counter()
            completed += self._engine.step()
            self._clock.synchronise()
            laps.append(1000 * (time.perf_counter() - start))
        self._finish(completed)
        return laps

    def steps_by_device(self, mode: str, head_start: float) -> DeviceSteps:
        """Milliseconds of each step by the device's clock. The last waits for results; there its forward is marked."""
        self._submit(mode)
        completed: list[Completion] = []
        was_ahead: list[bool] = []

        def mark(_: StepReport | None = None) -> None:
            self._clock.mark()
            was_ahead.append(self._clock.host_is_ahead())

        self._clock.synchronise()
        self._clock.give_head_start(head_start)
        self._clock.mark()
        for _ in range(NEW_TOKENS - 1):
            completed += self._engine.step()
            mark()
        self._engine.observe_step = mark
        completed += self._engine.step()
        self._engine.observe_step = None
        self._finish(completed)
        return DeviceSteps(self._clock.take_laps(), all(was_ahead))

    def _next(self, mode: str) -> list[BeamRequest]:
        self._num_asked += 1
        return self._work.requests(self._cell, mode, seed=self._num_asked)

    def _submit(self, mode: str) -> None:
        for request in self._next(mode):
            self._engine.submit(request)

    def _finish(self, completed: list[Completion]) -> None:
        while not self._engine.is_idle:
            completed += self._engine.step()
        for completion in completed:
            if isinstance(completion.outcome, RecallError):
                raise completion.outcome


def _steps(
    work: GpuWorkload, cell: Cell, by_host: Sequence[float], by_device: Sequence[float], ceilings: Ceilings
) -> list[dict[str, Any]]:
    config, itemsize = work.decoder.config, work.decoder.dtype.itemsize
    prefill = prefill_arithmetic(config, cell.context, cell.batch, itemsize)
    decodes = [decode_arithmetic(config, *cell, depth, itemsize) for depth in range(1, NEW_TOKENS)]
    return [
        {"phase": phase, "host_milliseconds": host, "device_milliseconds": device, "host_gap_share": 1 - device / host}
        | _rates(arithmetic, device, ceilings)
        for phase, arithmetic, host, device in zip(
            ("prefill", *["decode"] * len(decodes)), (prefill, *decodes), by_host, by_device, strict=True
        )
    ]


def _rates(arithmetic: Arithmetic, milliseconds: float, ceilings: Ceilings) -> dict[str, float]:
    tflops = arithmetic.operations / milliseconds / 1e9
    gigabytes_per_second = arithmetic.bytes / milliseconds / 1e6
    return {
        "tflops": tflops,
        "share_of_product": tflops / ceilings.product_tflops,
        "gigabytes_per_second": gigabytes_per_second,
        "share_of_copy": gigabytes_per_second / ceilings.copy_gigabytes_per_second,
    }


def _medians(runs: Sequence[Sequence[float]]) -> list[float]:
    """Of each step over the runs."""
    return [statistics.median(laps) for laps in zip(*runs, strict=True)]
