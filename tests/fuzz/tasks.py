"""What a worker is asked for, and what it finds."""

import re
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tests.fuzz.hostile import Hostile

FROM_FILE = -1  # the number of an input that was not made here


class Chunk(NamedTuple):
    """Check inputs `start` to `stop`, the latter not included, of one target."""

    target: str
    start: int
    stop: int


class Replay(NamedTuple):
    """Check the input that a file holds."""

    target: str
    file: Path


class Remake(NamedTuple):
    """Only make an input, for the one who checked it has died of it."""

    target: str
    number: int


Task: TypeAlias = Chunk | Replay | Remake


class Finding(NamedTuple):
    """An input whose check failed; `problem` says how: in its first line, the rest is where."""

    target: str
    number: int
    hostile: Hostile
    problem: str

    @property
    def kind(self) -> str:
        """Equal for findings that are likely one and the same fault: what was raised, and the line of ours it is in."""
        lines = [line.strip() for line in self.problem.splitlines() if line.lstrip().startswith("File ")]
        ours = [line for line in lines if re.search(r"/(recall_service|item_catalog)/", line) and "/.venv/" not in line]
        return f"{self.target}: {re.split(r'[:0-9]', self.problem, maxsplit=1)[0]} {(ours or lines or [''])[-1]}"
