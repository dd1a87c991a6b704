"""What a scenario found: its cases, and how many of them went wrong, leaked or hung."""

from collections import Counter
from dataclasses import dataclass, field

import grpc

from tests.faults.calls import Outcome
from tests.faults.oracle import Oracle
from tests.faults.questions import Question

LATE_SECONDS = 0.5
_MAX_NOTES = 24
_OK, _EXPIRED = grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED


@dataclass(frozen=True, slots=True)
class FaultReport:
    """cases: calls, signals and looks at a server.

    wrong: answers that are not right, and errors of a code that is not allowed there. leaked: things that are held for
    nobody, in a server at rest. hung: what came later than half a second after its deadline, or never.
    """

    cases: int
    wrong: int
    leaked: int
    hung: int
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return self.cases > 0 and not (self.wrong or self.leaked or self.hung)


@dataclass(slots=True)
class Tally:
    """Counts while a scenario goes on."""

    oracle: Oracle
    cases: int = 0
    wrong: int = 0
    leaked: int = 0
    hung: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def judge(self, question: Question, outcome: Outcome, *allowed: grpc.StatusCode) -> None:
        """Count a call: it must have been answered rightly, or have ended in one of the `allowed` codes in time.

        A deadline that passes where none was to pass means that somebody waited in vain.
        """
        self.cases += 1
        self.codes[outcome.code.name if outcome.code else "NEVER"] += 1
        if outcome.code is None or outcome.seconds > outcome.timeout + LATE_SECONDS:
            self.hang(f"{outcome.code} after {outcome.seconds:.2f} s of {outcome.timeout:.2f} s: {question}")
        elif outcome.code is _OK:
            if problem := self.oracle.problem(question, outcome.answer):
                self.fault(f"{problem}: {question}")
        elif outcome.code not in allowed:
            message = f"{outcome.code.name} ({outcome.details}): {question}"
            if outcome.code is _EXPIRED:
                self.hang(message)
            else:
                self.fault(message)

    def check(self, holds: bool, otherwise: str) -> None:
        """Count a look at something that must hold."""
        self.cases += 1
        if not holds:
            self.fault(otherwise)

    def fault(self, note: str) -> None:
        """Something is wrong."""
        self.wrong += 1
        self.note(f"wrong: {note}")

    def hang(self, note: str) -> None:
        """Somebody waited in vain."""
        self.hung += 1
        self.note(f"hung: {note}")

    def leak(self, note: str) -> None:
        """Something is held for nobody."""
        self.leaked += 1
        self.note(f"leaked: {note}")

    def note(self, note: str) -> None:
        """Worth a line; the first few are kept."""
        if len(self.notes) < _MAX_NOTES:
            self.notes.append(note)

    def report(self) -> FaultReport:
        """What it came to."""
        codes = ", ".join(f"{count} {name}" for name, count in self.codes.most_common())
        notes = (*([codes] if codes else []), *self.notes)
        return FaultReport(self.cases, self.wrong, self.leaked, self.hung, notes)
