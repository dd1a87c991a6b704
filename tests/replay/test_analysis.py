"""From outcomes on disk to verdicts: the same answers pass, what changed fails with a sentence and an exit code."""

import json
from pathlib import Path

import pytest

from recall_service.errors import ReplayError
from recall_service.replay.asked import Asked
from recall_service.replay.judging.analysis import Analysis, analyse
from recall_service.replay.judging.gate import Threshold
from recall_service.replay.outcome import Outcome
from tests.replay.fabricated import asked, drifted, logged_run, outcome, without_item, write

GATE = (Threshold("min_overlap@10", 1.0), Threshold("max_score_drift", 1e-4), Threshold("max_error_share", 0.0))


def judged(directory: Path, questions: list[Asked], outcomes: list[Outcome]) -> Analysis:
    """These outcomes against the log's answers."""
    path = write(directory / "outcomes.jsonl", outcomes)
    return analyse(
        asked=questions,
        outcomes=path,
        against_logged=True,
        slo_seconds=0.05,
        gate=GATE,
        title="a replay",
        out=directory,
    )


def test_replaying_a_log_against_what_answered_it_passes(tmp_path: Path) -> None:
    analysis = judged(tmp_path, *logged_run(60))
    assert analysis.exit_code == 0
    assert analysis.comparison is not None
    assert analysis.comparison.overall.pairs == analysis.comparison.overall.identical == 60
    assert analysis.comparison.overall.overlap_whole == 1
    assert analysis.comparison.overall.max_score_drift == 0


def test_a_removed_item_fails_the_gate_and_is_named_in_the_report(tmp_path: Path) -> None:
    questions, outcomes = logged_run(60)
    assert questions[0].expected is not None
    removed = questions[0].expected.item_ids[0]
    analysis = judged(tmp_path, questions, [without_item(one, removed) for one in outcomes])
    assert analysis.exit_code == 1
    assert analysis.verdicts[0].sentence.startswith("overlap@10 is 0.9")
    assert analysis.verdicts[0].sentence.endswith("at least 1 was asked: fails")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"Lost most, and nowhere gained: {removed} (in " in report
    assert "The gate fails: 1 of 3 thresholds" in report
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["exit_code"] == 1


def test_a_changed_weight_fails_the_gate_by_its_drift(tmp_path: Path) -> None:
    questions, outcomes = logged_run(60)
    analysis = judged(tmp_path, questions, [drifted(one, 0.01) for one in outcomes])
    assert analysis.exit_code == 1
    assert [verdict.passes for verdict in analysis.verdicts] == [True, False, True]
    assert analysis.verdicts[1].sentence == "greatest score drift is 0.01, at most 0.0001 was asked: fails"
    assert "Scores of shared items drift by up to 0.01" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_two_targets_are_compared_question_by_question_whatever_the_order_they_were_done_in(tmp_path: Path) -> None:
    questions, outcomes = logged_run(50)
    target = write(tmp_path / "target.jsonl", outcomes)
    against = write(tmp_path / "against.jsonl", [without_item(one, "item0001") for one in outcomes[::-1]])
    analysis = analyse(asked=questions, outcomes=target, against=against, title="two", out=tmp_path)
    assert analysis.comparison is not None
    assert analysis.comparison.overall.pairs == 50
    assert analysis.against is not None
    assert analysis.against.overall.requests == 50
    assert list(analysis.comparison.by_versions) == ["c2 -> c1"]
    lost = sum("item0001" in (one.expected.item_ids if one.expected else ()) for one in questions)
    assert analysis.comparison.overall.gained == lost > 0
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["against"]["overall"]["requests"] == 50


def test_hit_rates_are_of_the_items_that_the_source_says_were_taken_next(tmp_path: Path) -> None:
    questions = [asked(0, next_items=["b"]), asked(1, next_items=["z"]), asked(2)]
    path = write(tmp_path / "outcomes.jsonl", [outcome(index) for index in range(3)])
    overall = analyse(asked=questions, outcomes=path, title="hits", out=tmp_path).summary.overall
    assert (overall.hit_questions, overall.hit_rate(1), overall.hit_rate(2)) == (2, 0.0, 0.5)


def test_warm_up_and_cancelled_calls_are_not_compared(tmp_path: Path) -> None:
    questions, outcomes = logged_run(10)
    apart = [
        outcome(one.index, answer=one.answer, is_warm_up=one.index < 2, was_cancelled=one.index > 7) for one in outcomes
    ]
    analysis = judged(tmp_path, questions, apart)
    assert analysis.comparison is not None
    assert analysis.comparison.overall.pairs == analysis.summary.overall.requests == 6


def test_a_run_that_ended_early_is_judged_by_what_there_is(tmp_path: Path) -> None:
    questions, outcomes = logged_run(50)

    def endless() -> object:
        yield from questions
        raise AssertionError("read on after the last question that was asked")

    path = write(tmp_path / "outcomes.jsonl", [one for one in outcomes if one.index < 20])
    analysis = analyse(asked=endless(), outcomes=path, against_logged=True, title="cut", out=tmp_path)  # type: ignore[arg-type]
    assert analysis.summary.overall.requests == 20


def test_a_run_without_any_outcome_has_a_report_and_fails_its_gate(tmp_path: Path) -> None:
    analysis = judged(tmp_path, logged_run(5)[0], [])
    assert analysis.exit_code == 1
    assert "could not be measured" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_outcomes_of_another_source_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"3 of its outcomes are of requests that the source does not hold; give the"):
        judged(tmp_path, logged_run(5)[0], logged_run(8)[1])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not json", "line 2"),
        ("{}", "line 2: not an outcome"),
        ("[]", "line 2: not an outcome"),
        (outcome(7, service=-1.0).to_json(), "line 2: intended, sent and done are not moments"),
        (outcome(7, service=float("nan")).to_json(), "line 2: intended, sent and done are not moments"),
        (outcome(7).to_json().replace("-2.0", "-2.0,-3.0"), "line 2: 2 items but 3 scores"),
        (outcome(7).to_json().replace('"OK"', '"INTERNAL"'), "line 2: code is INTERNAL with an answer"),
        (outcome(0).to_json(), "two outcomes of request 0"),
    ],
)
def test_a_damaged_file_of_outcomes_is_one_error(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "outcomes.jsonl"
    path.write_text(f"{outcome(0).to_json()}\n{line}\n", encoding="utf-8")
    with pytest.raises(ReplayError) as caught:
        analyse(asked=[asked(0), asked(7)], outcomes=path, title="damaged", out=tmp_path)
    assert str(path) in str(caught.value)
    assert told in str(caught.value)


def test_files_that_are_not_there_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"none.jsonl: cannot be read: No such file"):
        analyse(asked=[], outcomes=tmp_path / "none.jsonl", title="none", out=tmp_path)
    path = write(tmp_path / "outcomes.jsonl", [])
    with pytest.raises(ReplayError, match=r"summary.json: cannot be written: No such file"):
        analyse(asked=[], outcomes=path, title="none", out=tmp_path / "nowhere")


def test_one_comparison_at_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "outcomes.jsonl", [])
    with pytest.raises(ReplayError, match="give one of them"):
        analyse(asked=[], outcomes=path, against=path, against_logged=True, title="both", out=tmp_path)
