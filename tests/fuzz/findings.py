"""What was found: kept once for each kind of fault, written to files, told to people."""

import hashlib
from pathlib import Path

from rich.console import Console

from tests.fuzz.tasks import FROM_FILE, Finding

FOUND = Path(__file__).parent / "found"
REGRESSIONS = Path(__file__).parent / "regressions"
_MOST_SHOWN = 20


class Findings:
    """Counts all, shows and keeps the first of each kind."""

    def __init__(self, console: Console, seed: int) -> None:
        self._console, self._seed = console, seed
        self._counts: dict[str, int] = {}

    @property
    def count(self) -> int:
        """How many inputs failed."""
        return sum(self._counts.values())

    def add(self, finding: Finding) -> None:
        """Count it; write and tell of it when it is new."""
        is_new = finding.kind not in self._counts
        self._counts[finding.kind] = self._counts.get(finding.kind, 0) + 1
        if is_new and len(self._counts) <= _MOST_SHOWN:
            self._tell(finding, _write(finding))

    def _tell(self, finding: Finding, file: Path) -> None:
        say = self._console.out  # takes nothing in it for markup
        say(f"\n{finding.target} {finding.hostile.place}: {finding.problem.strip()}")
        data = finding.hostile.data
        say(f"  input, {len(data):,} bytes: {data[:200]!r}{' ...' if len(data) > 200 else ''}")
        if finding.number != FROM_FILE:
            command = f"python -m tests.fuzz --seed {self._seed} --only {finding.target} --number {finding.number}"
            say(f"  again: {command}")
        say(f"  shortened: {file}; move it into {REGRESSIONS / finding.target} and every run will check it")


def _write(finding: Finding) -> Path:
    content = finding.hostile.to_bytes()
    file = FOUND / finding.target / hashlib.sha256(content).hexdigest()[:16]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file
