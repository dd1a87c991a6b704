"""A process that checks inputs one after another. It may die of one, or be killed over one: its parent knows which."""

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from recall_service.observability.logging import configure_logging
from tests.fuzz.examine import MAX_GROWN_BYTES, Examiner, resident_bytes
from tests.fuzz.forbidden import Watch
from tests.fuzz.hostile import Hostile, Target
from tests.fuzz.inputs import make_input
from tests.fuzz.shrink import shrunk
from tests.fuzz.targets.registry import open_target
from tests.fuzz.tasks import FROM_FILE, Finding, Remake, Replay, Task

_MAX_ADDRESS_BYTES = 8 * 1024**3  # beyond what the imports map: a claim of terabytes fails here, not on the machine

_QUICK_SECONDS = 0.5  # what takes longer is not shortened: that takes hundreds of checks


class Worker:
    """Keeps targets open, each in a directory of its own under `scratch`. position: the number of the input at hand."""

    def __init__(self, seed: int, position: Any, scratch: Path) -> None:
        self._seed, self._position, self._scratch = seed, position, scratch
        self._watch = Watch()
        self._targets: dict[str, Target] = {}
        self._examiners: dict[str, Examiner] = {}
        self._grown_bytes: dict[str, int] = {}
        self._shrunk: set[str] = set()

    def do(self, task: Task) -> Iterator[Finding]:
        """What fails; for Remake the input that was asked for."""
        target = self._open(task.target)
        if isinstance(task, Remake):
            yield Finding(task.target, task.number, make_input(target, task.target, self._seed, task.number), "")
            return
        resident = resident_bytes()
        number, hostile = FROM_FILE, Hostile("", b"")
        for number, hostile in self._inputs(task, target):
            self._position.value = number
            started = time.monotonic()
            if problem := self._examiners[task.target].problem(hostile):
                finding = Finding(task.target, number, hostile, problem)
                is_quick = time.monotonic() - started < _QUICK_SECONDS
                yield self._shortened(finding) if is_quick else finding
        if self._leaks(task.target, resident_bytes() - resident):
            yield Finding(task.target, number, hostile, "memory grew bit by bit, up to this input")

    def close(self) -> None:
        """Let go of what the targets hold."""
        for target in self._targets.values():
            target.close()

    def _open(self, name: str) -> Target:
        if name not in self._targets:
            (directory := self._scratch / name).mkdir()
            self._targets[name] = open_target(name, directory)
            self._examiners[name] = Examiner(self._targets[name], self._watch)
            _limit_memory()
        return self._targets[name]

    def _inputs(self, task: Task, target: Target) -> Iterator[tuple[int, Hostile]]:
        if isinstance(task, Replay):
            yield FROM_FILE, Hostile.from_bytes(task.file.read_bytes())
        elif not isinstance(task, Remake):
            for number in range(task.start, task.stop):
                yield number, make_input(target, task.target, self._seed, number)

    def _leaks(self, name: str, grown_bytes: int) -> bool:
        """Adds up what a target's tasks have left in memory, all but the first, which also imported what it needs."""
        if name in self._grown_bytes:
            self._grown_bytes[name] += grown_bytes
        return self._grown_bytes.setdefault(name, 0) > MAX_GROWN_BYTES

    def _shortened(self, finding: Finding) -> Finding:
        """The first of its kind; who has seen one has seen all."""
        if finding.kind in self._shrunk:
            return finding
        self._shrunk.add(finding.kind)
        examiner = self._examiners[finding.target]

        def fails_alike(hostile: Hostile) -> bool:
            return finding._replace(hostile=hostile, problem=examiner.problem(hostile)).kind == finding.kind

        return finding._replace(hostile=shrunk(finding.hostile, fails_alike))


def work(seed: int, position: Any, tasks: Connection, findings: Connection) -> None:
    """Do tasks until told None. Sends each finding as it comes, and None after the last one of a task."""
    with tempfile.TemporaryDirectory() as scratch, Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        with redirect_stderr(nowhere):  # lines are made as the service makes them; there are a million
            configure_logging("info", "json")
        worker = Worker(seed, position, Path(scratch))
        while (task := tasks.recv()) is not None:
            for finding in worker.do(task):
                findings.send(finding)
            findings.send(None)
        worker.close()


def _limit_memory() -> None:
    mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _MAX_ADDRESS_BYTES, resource.RLIM_INFINITY))
