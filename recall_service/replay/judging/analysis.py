"""From the outcomes of a replay on disk to a judgement: summary, comparison, verdicts, and the files that tell of them.

Knows how questions, outcomes and logged answers belong together; not how they came about.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recall_service.errors import ReplayError
from recall_service.replay.asked import Answered, Asked
from recall_service.replay.judging.comparing import Comparing
from recall_service.replay.judging.comparison import Comparison
from recall_service.replay.judging.gate import Threshold, Verdict, judge
from recall_service.replay.judging.outcome_table import OutcomeTableBuilder
from recall_service.replay.judging.recorded import RecordedOutcomes
from recall_service.replay.judging.samples import sample_run
from recall_service.replay.judging.summary import Summary, summarise_table
from recall_service.replay.outcome import Outcome
from recall_service.replay.report.writer import write_report

TARGET, AGAINST = "target", "against"  # how whoever runs a replay names its runs
_REFERENCE = "reference"  # and what the report calls the second, as it may be the log


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a replay came to. against: of the run that it was compared with, if there was one."""

    title: str
    summary: Summary
    against: Summary | None
    comparison: Comparison | None
    verdicts: tuple[Verdict, ...]

    @property
    def exit_code(self) -> int:
        """1 when any threshold is not kept, else 0."""
        return int(not all(verdict.passes for verdict in self.verdicts))

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "title": self.title,
            "summary": self.summary.to_json(),
            "against": None if self.against is None else self.against.to_json(),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "exit_code": self.exit_code,
        }


def analyse(
    *,
    asked: Iterable[Asked],
    outcomes: Path,
    against: Path | None = None,
    against_logged: bool = False,
    slo_seconds: float | None = None,
    gate: Sequence[Threshold] = (),
    title: str = "Replay",
    settings: Mapping[str, str] | None = None,
    out: Path,
) -> Analysis:
    """Judge a run, and write summary.json and report.html into the directory `out`.

    asked: the questions of the run once more; others may be among them. outcomes: what came of them, as JSON lines.
    against: what came of the same questions at another target; or, with against_logged, their logged answers are what
    the target's are compared with. settings: what the report tells of how the run was made.
    Takes one question at a time; what it keeps of each is 56 bytes a run.
    Raises ReplayError when a file cannot be read or written, holds what is no outcome, or outcomes of other questions.
    """
    if against is not None and against_logged:
        raise ReplayError("answers can be compared with another target's or with the log's; give one of them")
    paths = {TARGET: outcomes} | ({} if against is None else {_REFERENCE: against})
    tables = {name: OutcomeTableBuilder() for name in paths}
    comparing = Comparing() if against is not None or against_logged else None
    with ExitStack() as stack:
        files = {name: stack.enter_context(RecordedOutcomes(path)) for name, path in paths.items()}
        left = {name: len(file) for name, file in files.items()}
        for question in asked if any(left.values()) else ():
            found = {name: file.get(question.index) for name, file in files.items()}
            for name, outcome in found.items():
                if outcome is not None:
                    left[name] -= 1
                    tables[name].add(outcome, question.next_items)
            if comparing is not None:
                _compare(comparing, question, found, against_logged=against_logged)
            if not any(left.values()):
                break
    for name, path in paths.items():
        if left[name]:
            raise ReplayError(
                f"{path}: {left[name]:,} of its outcomes are of requests that the source does not hold; "
                "give the source, sample and seed of that run"
            )
    summaries = {name: summarise_table(table, slo_seconds=slo_seconds) for name, table in tables.items()}
    comparison = None if comparing is None else comparing.finish()
    analysis = Analysis(
        title=title,
        summary=summaries[TARGET],
        against=summaries.get(_REFERENCE),
        comparison=comparison,
        verdicts=judge(gate, summaries[TARGET], comparison),
    )
    _write_json(out / "summary.json", analysis.to_json())
    write_report(
        out / "report.html",
        title=title,
        summaries=summaries,
        comparison=comparison,
        verdicts=analysis.verdicts,
        settings=settings or {},
        samples={name: sample_run(table.build()) for name, table in tables.items()},
    )
    return analysis


def _compare(
    comparing: Comparing, question: Asked, outcomes: Mapping[str, Outcome | None], *, against_logged: bool
) -> None:
    """Compare one question's answers, if it counts with the target and with what that is compared with."""
    candidate = outcomes[TARGET]
    if candidate is None or _is_apart(candidate):
        return
    reference: Answered | None
    if against_logged:
        reference = question.expected
    else:
        other = outcomes[_REFERENCE]
        if other is None or _is_apart(other):
            return
        reference = other.answer
    comparing.add(question.index, candidate.scene, reference, candidate.answer, question.next_items)


def _is_apart(outcome: Outcome) -> bool:
    return outcome.is_warm_up or outcome.was_cancelled


def _write_json(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ReplayError(
            f"{path}: cannot be written: {error.strerror}; make room, or give another directory"
        ) from None
