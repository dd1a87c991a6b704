"""A peer as a process that is asked in turns; see `peers_scripts/questions.py` for what is said."""

import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.peer_recipes import SCRIPTS, Peer, PeerUnavailable

SECONDS_TO_WAIT = 900.0


class PeerAnswer(NamedTuple):
    """What a peer took, and its best beam's sum of log-probabilities."""

    seconds: float
    top_score: float


class PeerProcess:
    """One peer with the checkpoint loaded. What it prints besides answers goes to a log below its work directory.

    Between questions it is stopped: some keep threads spinning while they wait, which would slow whoever runs next.
    """

    def __init__(self, peer: Peer, python: Path, checkpoint: Path, work: Path) -> None:
        directory = work / peer.name
        directory.mkdir(parents=True, exist_ok=True)
        self._name, self._log = peer.name, directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own script, no shell
                [str(python), str(SCRIPTS / peer.script), str(checkpoint.resolve()), str(directory.resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                start_new_session=True,  # a group of its own, with all the processes it starts
            )

    def ask(self, prompt: Sequence[int], width: int, new_tokens: int) -> PeerAnswer:
        """Put one question and wait. Raises PeerUnavailable when no answer comes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.killpg(self._process.pid, signal.SIGCONT)
        question = {"prompt": list(prompt), "width": width, "new_tokens": new_tokens}
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerUnavailable(self._why("ended")) from None
        if not select.select([self._process.stdout], [], [], SECONDS_TO_WAIT)[0]:
            raise PeerUnavailable(self._why(f"gave no answer in {SECONDS_TO_WAIT:.0f} s"))
        answer = self._process.stdout.readline()
        if not answer:
            raise PeerUnavailable(self._why("ended"))
        os.killpg(self._process.pid, signal.SIGSTOP)
        return PeerAnswer(**json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _why(self, what: str) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "nothing")
        return f"{self._name} {what}; its last words were: {last.strip()[:300]}"
