"""A short run over every target, and the fuzzer itself: whatever goes wrong is found, and is told by its number."""

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fuzz import pool
from tests.fuzz.hostile import Hostile
from tests.fuzz.inputs import make_input, numbers_of
from tests.fuzz.pool import run_tasks
from tests.fuzz.shrink import shrunk
from tests.fuzz.targets.faulty import FAULTS
from tests.fuzz.targets.faulty import Target as FaultyTarget
from tests.fuzz.targets.registry import SHARES, open_target
from tests.fuzz.tasks import Chunk, Finding, Task

SEED = 3
PROBLEMS = {
    "error": "KeyError: 'of the reader'",
    "broken": "a promise",
    "panic": "BaseException: as Rust does it",
    "pickle": "forbidden: pickle.find_class",
    "swallowed": "forbidden, and the error swallowed",
    "slow": "took 2.",
    "large": "memory grew by",
    "exit": "the process died of it, exit code 7",
    "hang": "no end in 8 s",
}


def test_a_short_run_finds_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "3000", "--seed", str(SEED), "--processes", "1"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    assert (result["inputs"], result["failures"], result["seed"]) == (3_000, 0, SEED)
    assert result["by_target"].keys() == SHARES.keys()
    assert sum(result["by_target"].values()) == 3_000


def test_every_fault_is_found_and_told_by_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "STUCK_SECONDS", 8.0)
    target = FaultyTarget(tmp_path)
    faults = [fault_of(make_input(target, "faulty", SEED, number)) for number in range(500)]
    number_of = {fault: faults.index(fault) for fault in FAULTS}
    death = next(number for number, pair in enumerate(pairwise(faults)) if pair == ("exit", "error"))
    tasks = [Chunk("faulty", number, number + 1) for number in number_of.values()]
    tasks.append(Chunk("faulty", death, death + 2))  # who dies of the first is replaced, and goes on with the second
    found: dict[int, Finding] = {}

    def note(task: Task, findings: list[Finding]) -> None:
        found.update({finding.number: finding for finding in findings})

    run_tasks(tasks, seed=SEED, num_processes=2, deadline=time.monotonic() + 60, on_done=note)
    assert found.keys() == {*number_of.values(), death, death + 1} - {number_of["none"]}
    assert found[death + 1].problem.startswith(PROBLEMS["error"])
    for fault, beginning in PROBLEMS.items():
        assert found[number_of[fault]].problem.startswith(beginning)
    assert found[number_of["error"]].hostile.data == b"error"  # made as short as it can be
    assert found[number_of["exit"]].hostile == make_input(target, "faulty", SEED, number_of["exit"])


def fault_of(hostile: Hostile) -> str:
    return next(fault for fault in FAULTS if fault.encode() in hostile.data)


@pytest.mark.parametrize("name", ["cached_answer", "bundle_file", "client", "source"])
def test_equal_seeds_make_equal_inputs(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = open_target(name, tmp_path / "a"), open_target(name, tmp_path / "b")
    inputs = [make_input(one, name, SEED, number) for number in range(20)]
    assert inputs == [make_input(other, name, SEED, number) for number in range(20)]
    assert len(set(inputs)) > 15
    assert inputs != [make_input(one, name, SEED + 1, number) for number in range(20)]


def test_inputs_come_back_from_a_file() -> None:
    hostile = Hostile("model/config.json", b"a\nb\0\xff")
    assert Hostile.from_bytes(hostile.to_bytes()) == hostile


def test_shrinking_keeps_what_it_fails_by() -> None:
    data = bytes(range(200)) + b"needle" + bytes(200)
    assert shrunk(Hostile("", data), lambda hostile: b"needle" in hostile.data).data == b"needle"


@pytest.mark.parametrize("total", [3, 10, 1_000, 1_000_000])
def test_all_inputs_are_given_out(total: int) -> None:
    counts = numbers_of({"a": 0.7, "b": 0.299, "c": 0.001}, total)
    assert sum(counts.values()) == total
    assert min(counts.values()) >= 1
