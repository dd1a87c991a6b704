"""Hostile input, by the million: every reader of bytes that strangers may have written.

Valid inputs are spoilt with their structure in mind: as messages, documents, arrays, with checksums that are right. A
fault is an exception that a reader must not raise, a promise broken, a process that dies or does not get on, 2 s of
processor time, 200 MiB of memory, anything unpickled or started. Inputs follow from the seed and their number. What is
found is shown, and kept under tests/fuzz/found/; what was found before, tests/fuzz/regressions/, is checked every time.
Progress is on stderr, one JSON document the last line of stdout. Exits with 1 when anything fails.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from threading import Lock

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.fuzz.findings import REGRESSIONS, Findings
from tests.fuzz.inputs import numbers_of
from tests.fuzz.pool import run_tasks
from tests.fuzz.targets.registry import SHARES
from tests.fuzz.tasks import Chunk, Finding, Replay, Task

_CHUNKS = 50  # of each target: a worker that is ahead takes more of them


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    flags = _flags(arguments)
    console = Console(stderr=True)
    started = time.monotonic()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the workers: there is one for each core already
    findings, done = Findings(console, flags.seed), Counter[str]()
    tasks, one_at_a_time = _tasks(flags), Lock()
    columns = TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars = {
            name: progress.add_task(name, total=_inputs_of(name, tasks)) for name in {task.target for task in tasks}
        }

        def note(task: Task, found: list[Finding]) -> None:
            with one_at_a_time:
                for finding in found:
                    findings.add(finding)
                done[task.target] += _num_inputs(task)
                progress.advance(bars[task.target], _num_inputs(task))

        deadline = started + flags.seconds
        run_tasks(tasks, seed=flags.seed, num_processes=flags.processes, deadline=deadline, on_done=note)
    seconds = time.monotonic() - started
    from benchmarks.report import commit, hardware, print_json_line  # torch, which no short run should wait for

    _summarise(console, done, findings.count, seconds)
    print_json_line(
        {
            "inputs": done.total(),
            "by_target": dict(done),
            "failures": findings.count,
            "seconds": round(seconds, 1),
            "seed": flags.seed,
            "hardware": hardware(),
            "commit": commit(),
        }
    )
    return 1 if findings.count else 0


def _flags(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all; default 1,000,000")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so long")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds make equal inputs")
    parser.add_argument("--only", default=",".join(SHARES), help="targets by comma")
    parser.add_argument("--number", type=int, help="this one input of the target that --only names")
    parser.add_argument("--processes", type=int, default=2)
    flags = parser.parse_args(arguments)
    flags.only = flags.only.split(",")
    if strangers := set(flags.only) - set(SHARES):
        parser.error(f"--only: no target {min(strangers)}; there are {', '.join(SHARES)}")
    if flags.number is not None and len(flags.only) != 1:
        parser.error("--number: an input of which target? give one with --only")
    return flags


def _tasks(flags: argparse.Namespace) -> list[Task]:
    """What was found before first; then a chunk of each target in turn, so that none has to wait for another."""
    if flags.number is not None:
        return [Chunk(flags.only[0], flags.number, flags.number + 1)]
    known: list[Task] = [
        Replay(name, file) for name in flags.only for file in sorted((REGRESSIONS / name).glob("[!.]*"))
    ]
    counts = numbers_of({name: SHARES[name] for name in flags.only}, max(flags.inputs - len(known), len(flags.only)))
    chunks: list[Task] = []
    for place in range(_CHUNKS):
        for name, count in counts.items():
            start, stop = count * place // _CHUNKS, count * (place + 1) // _CHUNKS
            if start < stop:
                chunks.append(Chunk(name, start, stop))
    return known + chunks


def _num_inputs(task: Task) -> int:
    return task.stop - task.start if isinstance(task, Chunk) else 1


def _inputs_of(name: str, tasks: Sequence[Task]) -> int:
    return sum(_num_inputs(task) for task in tasks if task.target == name)


def _summarise(console: Console, done: Counter[str], num_failures: int, seconds: float) -> None:
    for name, count in done.most_common():
        console.out(f"{name:>14}  {count:>9,}")
    verdict = f"{num_failures:,} failed" if num_failures else "none failed"
    console.out(f"{'in all':>14}  {done.total():>9,}  in {seconds:,.0f} s, {verdict}")


if __name__ == "__main__":
    sys.exit(main())
