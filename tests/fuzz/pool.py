"""Workers that are watched: one that dies, or does not get on, costs the input it was at, and is replaced."""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

from tests.fuzz.hostile import Hostile
from tests.fuzz.tasks import FROM_FILE, Chunk, Finding, Remake, Replay, Task
from tests.fuzz.worker import work

STUCK_SECONDS = 60.0  # at one input; a worker's imports are in front of its first one
_PROCESSES = multiprocessing.get_context("spawn")


def run_tasks(
    tasks: Sequence[Task],
    *,
    seed: int,
    num_processes: int,
    deadline: float,
    on_done: Callable[[Task, list[Finding]], None],
) -> None:
    """Do `tasks`, as many at once as there are processes; none is begun after `deadline` of `time.monotonic()`.

    on_done: told of each task and its findings; by several threads.
    """
    waiting = deque(tasks)
    errors: list[Exception] = []

    def attend() -> None:
        process = _Watched(seed)
        try:
            while time.monotonic() < deadline and (task := _next(waiting)) is not None:
                on_done(task, process.do(task))
        except Exception as error:  # noqa: BLE001  raised again where somebody hears it
            errors.append(error)
        finally:
            process.stop()

    # As daemons they, and the processes with them, end with a main thread that is interrupted.
    threads = [Thread(target=attend, daemon=True) for _ in range(num_processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _next(waiting: deque[Task]) -> Task | None:
    """Asked and taken in one, for another thread may take the last one in between."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


class _Watched:
    """A worker process, and another one when it is gone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._start()

    def do(self, task: Task) -> list[Finding]:
        """The findings of one task, those that killed the worker included."""
        findings: list[Finding] = []
        rest: Task | None = task
        while rest is not None:
            problem = self._do_until_death(rest, findings)
            if not problem:
                return findings
            number = int(self._position.value)
            self._process.kill()  # where it is stuck, asking is of no use
            self.stop()
            self._start()
            findings.append(self._death(rest, number, problem))
            rest = Chunk(rest.target, number + 1, rest.stop) if isinstance(rest, Chunk) and number >= 0 else None
        return findings

    def stop(self) -> None:
        """End it: by asking, where that helps."""
        with suppress(BrokenPipeError):
            self._tasks.send(None)
        self._process.join(5)
        self._process.kill()
        self._process.join()

    def _start(self) -> None:
        tasks, self._tasks = _PROCESSES.Pipe(duplex=False)
        self._findings, findings = _PROCESSES.Pipe(duplex=False)
        self._position: Any = _PROCESSES.Value("q", FROM_FILE, lock=False)
        self._process = _PROCESSES.Process(target=work, args=(self._seed, self._position, tasks, findings), daemon=True)
        self._process.start()
        findings.close()  # the worker's own end is the last one then, and its death is an end of file

    def _do_until_death(self, task: Task, findings: list[Finding]) -> str:
        """Add to `findings`; why the worker is of no use any more, empty when it is."""
        self._position.value = FROM_FILE
        self._tasks.send(task)
        position, since = FROM_FILE, time.monotonic()
        while True:
            try:
                while self._findings.poll(0.2):
                    if (finding := self._findings.recv()) is None:
                        return ""
                    findings.append(finding)
            except EOFError:
                self._process.join()
                return f"the process died of it, exit code {self._process.exitcode}"
            if self._position.value != position:
                position, since = self._position.value, time.monotonic()
            elif time.monotonic() - since > STUCK_SECONDS:
                return f"no end in {STUCK_SECONDS:g} s"

    def _death(self, task: Task, number: int, problem: str) -> Finding:
        """Which input it was; the worker's targets could not be opened if it died before the first one."""
        if isinstance(task, Replay):
            return Finding(task.target, number, Hostile.from_bytes(task.file.read_bytes()), problem)
        if number < 0:
            return Finding(task.target, number, Hostile("none", b""), f"before its first input: {problem}")
        remade: list[Finding] = []
        self._do_until_death(Remake(task.target, number), remade)
        return (
            remade[0]._replace(problem=problem) if remade else Finding(task.target, number, Hostile("?", b""), problem)
        )
