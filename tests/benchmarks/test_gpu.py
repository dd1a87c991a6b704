"""What is measured on a GPU, measured here at toy size on the CPU: all figures there, and made of what they claim."""

import json
import time
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, gpu_check
from benchmarks.arithmetic import decode_arithmetic, prefill_arithmetic
from benchmarks.device_clock import DeviceClock
from benchmarks.gpu_engine_cases import TINY
from benchmarks.gpu_stages import Ceilings
from benchmarks.gpu_suite import Outcome
from benchmarks.gpu_tables import print_cells, print_peers
from benchmarks.gpu_workload import CONSTRAINED, FREE, NEW_TOKENS, Cell, GpuWorkload
from recall_service.engine.engine import BeamEngine
from recall_service.errors import Overloaded

CPU = torch.device("cpu")
CELL = Cell(context=40, width=8, batch=2)
JOBS = [gpu.Job(gpu.SEARCH, CELL), gpu.Job(gpu.PEER, Cell(context=20, width=8, batch=1))]
RESULT_FIELDS = {
    *("context", "width", "batch", "mode", "milliseconds", "steps", "host_was_ahead", "host_gap_share"),
    *("selection_milliseconds", "constraint_cost_percent"),
}
STEP_FIELDS = {
    *("phase", "host_milliseconds", "device_milliseconds", "host_gap_share", "tflops", "share_of_product"),
    *("gigabytes_per_second", "share_of_copy"),
}
PEER_FIELDS = {*("context", "width", "batch", "peer", "milliseconds", "ours_milliseconds", "ratio", "score_difference")}


@pytest.fixture(scope="module")
def work() -> GpuWorkload:
    return GpuWorkload.random(TINY, codebook_size=64, num_items=4000, dtype=torch.float32, device=CPU)


@pytest.fixture(autouse=True)
def low_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product of 8,192 here."""
    measure_ceilings = gpu.measure_ceilings
    monkeypatch.setattr(
        gpu, "measure_ceilings", lambda clock, dtype: measure_ceilings(clock, dtype, size=32, copied=4096, repeats=2)
    )


def measure(work: GpuWorkload, seconds: float = 60.0) -> dict[str, Any]:
    return gpu.measure(work, JOBS, repeats=2, deadline=time.monotonic() + seconds)


def test_a_cell_is_made_of_its_parts(work: GpuWorkload, capsys: pytest.CaptureFixture[str]) -> None:
    document = measure(work)
    assert document["failed"] == document["peers_skipped"] == document["not_run"] == []
    constrained, free = document["results"]
    assert (constrained["mode"], free["mode"]) == (CONSTRAINED, FREE)
    for result in (constrained, free):
        assert set(result) == RESULT_FIELDS
        assert Cell(result["context"], result["width"], result["batch"]) == CELL
        assert Counter(step["phase"] for step in result["steps"]) == {"prefill": 1, "decode": NEW_TOKENS - 1}
        for step in result["steps"]:
            assert set(step) == STEP_FIELDS
            assert step["host_gap_share"] == pytest.approx(1 - step["device_milliseconds"] / step["host_milliseconds"])
            ceilings = Ceilings(**document["ceilings"])
            assert step["share_of_product"] == pytest.approx(step["tflops"] / ceilings.product_tflops)
            rate = step["gigabytes_per_second"]
            assert step["share_of_copy"] == pytest.approx(rate / ceilings.copy_gigabytes_per_second)
        on_device = sum(step["device_milliseconds"] for step in result["steps"])
        assert result["host_gap_share"] == pytest.approx(1 - on_device / result["milliseconds"])
        assert len(result["selection_milliseconds"]) == NEW_TOKENS
        assert min(result["selection_milliseconds"]) > 0
    ratio = constrained["milliseconds"] / free["milliseconds"]
    assert constrained["constraint_cost_percent"] == pytest.approx(100 * (ratio - 1))
    assert free["constraint_cost_percent"] is None
    prefill = prefill_arithmetic(TINY, CELL.context, CELL.batch, 4)
    step = free["steps"][0]
    assert step["tflops"] * step["device_milliseconds"] * 1e9 == pytest.approx(prefill.operations)
    assert step["gigabytes_per_second"] * step["device_milliseconds"] * 1e6 == pytest.approx(prefill.bytes)

    print_cells(document["results"])
    print_peers(document["peers"])
    printed = capsys.readouterr().out
    assert f"{constrained['milliseconds']:.2f}" in printed
    assert f"{document['peers'][0]['ratio']:.2f}" in printed
    json.dumps(document)


def test_transformers_finds_our_scores_with_our_weights(work: GpuWorkload) -> None:
    (peer,) = measure(work)["peers"]
    assert set(peer) == PEER_FIELDS
    assert peer["score_difference"] < 1e-4
    assert peer["ratio"] == pytest.approx(peer["milliseconds"] / peer["ours_milliseconds"])


def test_another_score_than_ours_is_a_failure(work: GpuWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu_peer.SCORE_TOLERANCE", -1.0)
    document = measure(work)
    assert [failed["what"] for failed in document["failed"]] == [gpu.PEER]
    assert "apart" in document["failed"][0]["error"]


@pytest.mark.parametrize(
    ("ended", "named", "job", "left"),
    [("measure_cell", "failed", JOBS[0], "peers"), ("measure_peer", "peers_skipped", JOBS[1], "results")],
    ids=["search", "peer"],
)
def test_want_of_memory_ends_its_own_job_alone(
    ended: str, named: str, job: gpu.Job, left: str, work: GpuWorkload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(gpu, ended, refuse)
    document = measure(work)
    assert document[named] == [{"what": job.what, **job.cell._asdict(), "error": "OutOfMemoryError: no room"}]
    assert document[left]
    assert (named == "failed") == bool(document["failed"])


def test_a_search_that_fails_is_not_timed(work: GpuWorkload, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = BeamEngine.submit

    def submit_and_fail(engine: BeamEngine, request: Any) -> int:
        number = submit(engine, request)
        engine._completed += engine.abort(Overloaded("no", retry_after_seconds=1.0))
        return number

    monkeypatch.setattr(BeamEngine, "submit", submit_and_fail)
    document = measure(work)
    assert document["results"] == []
    assert document["failed"][0]["error"] == "Overloaded: no"


def test_what_there_is_no_time_for_is_named(work: GpuWorkload) -> None:
    document = measure(work, seconds=-1.0)
    assert document["results"] == document["peers"] == []
    assert document["not_run"] == [{"what": job.what, **job.cell._asdict()} for job in JOBS]


def test_the_grid_is_whole_and_begins_with_what_matters() -> None:
    jobs = gpu.jobs(quick=False)
    assert jobs[:2] == [gpu.Job(gpu.SEARCH, Cell(1000, 256, 1)), gpu.Job(gpu.SEARCH, Cell(1000, 256, 8))]
    assert Counter(job.what for job in jobs) == {gpu.SEARCH: 18, gpu.PEER: 2}
    assert len(set(jobs)) == len(jobs)
    assert gpu.jobs(quick=True) == jobs[:1]


@pytest.mark.parametrize("context", [1, 2, 40, 64])  # up to a block, where prompt attention computes the whole square
def test_operations_are_those_that_torch_counts(work: GpuWorkload, context: int) -> None:
    cell = Cell(context, width=8, batch=2)
    engine = BeamEngine(work.decoder, work.engine_for(cell).limits)
    for request in work.requests(cell, FREE, seed=0):
        engine.submit(request)
    counted = []
    for _ in range(NEW_TOKENS):
        with FlopCounterMode(display=False) as counter:
            engine.step()
        counted.append(counter.get_total_flops())
    per_key = 4 * TINY.num_heads * TINY.head_dim
    later_keys = cell.batch * (TINY.num_layers - 1) * context * (context - 1) // 2
    assert counted[0] == prefill_arithmetic(TINY, context, cell.batch, 4).operations + per_key * later_keys
    for depth in range(1, NEW_TOKENS):
        own_keys = cell.batch * cell.width * TINY.num_layers * depth  # multiplied without a matrix product
        assert counted[depth] == decode_arithmetic(TINY, *cell, depth, 4).operations - per_key * own_keys


def test_bytes_are_those_of_weights_keys_values_and_logits(work: GpuWorkload) -> None:
    linears = [linear for layer in work.weights.layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    weights = sum(linear.weight.nbytes for linear in linears) + work.weights.head.nbytes
    pages = work.engine_for(CELL).pages
    token_bytes = 2 * pages.storage.keys[:, 0].nbytes
    logits = TINY.vocab_size * 4
    prompts = CELL.batch * CELL.context * token_bytes
    assert prefill_arithmetic(TINY, CELL.context, CELL.batch, 4).bytes == weights + prompts + 2 * CELL.batch * logits
    rows = CELL.batch * CELL.width
    of_rows = rows * (2 * token_bytes + 2 * logits)
    assert decode_arithmetic(TINY, *CELL, 2, 4).bytes == weights + prompts + of_rows


def test_laps_lie_between_marks() -> None:
    clock = DeviceClock(CPU)
    clock.give_head_start(1000.0)
    start = time.perf_counter()
    clock.mark()
    time.sleep(0.02)
    clock.mark()
    clock.mark()
    passed = 1000 * (time.perf_counter() - start)
    slept, nothing = clock.take_laps()
    assert 20 <= slept <= slept + nothing <= passed
    assert clock.host_is_ahead()
    clock.mark()
    assert clock.take_laps() == []


class FakeGpu:
    """A queue whose work is waits alone: of so many cycles, at 1,000 a millisecond. Nothing runs until it must."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked_until = self.done_until = 0.0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.when = gpu.asked_until

            def query(self) -> bool:
                return self.when <= gpu.done_until

            def elapsed_time(self, later: "Event") -> float:
                assert self.query()
                assert later.query()
                return later.when - self.when

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "_sleep", self.work)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: self.catch_up())

    def work(self, cycles: int) -> None:
        self.asked_until += cycles / 1000

    def catch_up(self) -> None:
        self.done_until = self.asked_until


def test_laps_of_a_gpu_begin_after_its_head_start(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeGpu(monkeypatch)
    clock = DeviceClock(torch.device("cuda"))
    clock.give_head_start(50.0)
    for cycles in (0, 3000, 7000):
        fake.work(cycles)
        clock.mark()
    assert clock.host_is_ahead()
    fake.catch_up()
    assert not clock.host_is_ahead()
    assert clock.take_laps() == pytest.approx([3.0, 7.0])


@pytest.mark.parametrize(("program", "name"), [(gpu, "gpu"), (gpu_check, "gpu_check")])
def test_without_a_gpu_it_says_so_and_is_done(
    program: Any, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert program.main([]) == 0
    sentence, document = capsys.readouterr().out.splitlines()
    assert "no CUDA device" in sentence
    assert json.loads(document)["benchmark"] == name
    assert json.loads(document)["skipped"] in sentence


@pytest.mark.parametrize(
    ("error", "failed", "status"),
    [(None, [], 0), ("AssertionError: 2 for 3", [], 1), (None, [{"what": gpu.SEARCH}], 1)],
    ids=["all well", "a check failed", "a measurement failed"],
)
def test_the_check_goes_on_to_measure_and_tells_what_failed(
    error: str | None,
    failed: list[dict[str, str]],
    status: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = {"a suite": [Outcome("one thing", None, 0.5), Outcome("another", error, 0.25)]}
    monkeypatch.setattr(gpu_check, "why_unfit", lambda: None)
    monkeypatch.setattr(gpu_check, "gpu_hardware", lambda: {"accelerator": "none"})
    monkeypatch.setattr(gpu_check, "run_suites", lambda modules, device, timeout_seconds: outcomes)
    monkeypatch.setattr(gpu_check, "measure_gpu", lambda deadline, quick: {"results": [quick], "failed": failed})
    assert gpu_check.main(["--quick", "--seconds", "5"]) == status
    *lines, last = capsys.readouterr().out.splitlines()
    document = json.loads(last)
    assert document["checks"] == {"a suite": 2}
    assert document["results"] == [True]
    assert [failure["error"] for failure in document["failed_checks"]] == ([error] if error else [])
    assert any("ok" in line and "one thing" in line for line in lines)
    assert any("FAILED" in line and "another" in line for line in lines) == (error is not None)
    assert (error in lines) == (error is not None)
