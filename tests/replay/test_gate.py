"""The gate: every threshold passes on one side of its limit and fails on the other, in a sentence that does not lie."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from recall_service.errors import SettingsError
from recall_service.replay.judging.comparing import Comparing
from recall_service.replay.judging.comparison import Comparison
from recall_service.replay.judging.gate import Threshold, judge, parse_threshold, read_gate
from recall_service.replay.judging.outcome_table import OutcomeTableBuilder
from recall_service.replay.judging.summary import Summary, summarise, summarise_table
from tests.replay.fabricated import answered, outcome


def run() -> Summary:
    """100 requests: 2 refused, the others answered in 1, 2, ... 98 ms; half of these short, 10 good; hit@2 is 0.25."""
    table = OutcomeTableBuilder()
    for index in range(98):
        short = "BEAM_TOO_NARROW" if index % 2 else ""
        answer = answered(("a", "b"), short_reason=short)
        next_items = {0: ("b",), 1: ("z",), 2: ("y",), 3: ("x",)}.get(index, ())
        table.add(outcome(index, service=(index + 1) / 1000, answer=answer), next_items)
    for index in (98, 99):
        table.add(outcome(index, code="UNAVAILABLE"))
    return summarise_table(table, slo_seconds=0.0105)


def pairs() -> Comparison:
    """Two pairs: overlap@1 is 1, of two items 0.75; tau is 1; the greatest drift is 0.5."""
    comparing = Comparing()
    comparing.add(0, "feed", answered("ab"), answered("ab", [-1.0, -2.5]))
    comparing.add(1, "feed", answered("ab"), answered("ac"))
    return comparing.finish()


SIDES = [
    ("min_overlap@1", 1.0, None),
    ("min_overlap@2", 0.75, 0.76),
    ("min_overlap@50", 0.75, 0.76),
    ("min_rank_correlation", 1.0, None),
    ("max_score_drift", 0.5, 0.49),
    ("min_hit_rate@1", 0.0, 0.01),
    ("min_hit_rate@2", 0.25, 0.26),
    ("max_p50_ms", 49.001, 48.9),
    ("max_p90_ms", 89.001, 88.9),
    ("max_p95_ms", 94.001, 93.9),
    ("max_p99_ms", 98.001, 97.9),
    ("max_p999_ms", 98.001, 97.9),
    ("max_error_share", 0.02, 0.019),
    ("max_short_share", 0.5, 0.49),
    ("min_good_share", 0.1, 0.11),
]


@pytest.mark.parametrize(("name", "passes", "fails"), SIDES, ids=[name for name, *_ in SIDES])
def test_a_threshold_passes_on_one_side_of_its_limit(name: str, passes: float, fails: float | None) -> None:
    (verdict,) = judge([Threshold(name, passes)], run(), pairs())
    assert verdict.passes
    assert verdict.sentence.endswith(": passes")
    if fails is not None:
        (verdict,) = judge([Threshold(name, fails)], run(), pairs())
        assert not verdict.passes
        assert verdict.sentence.endswith(": fails")


def test_a_verdict_is_a_sentence() -> None:
    thresholds = [Threshold("min_overlap@2", 0.95), Threshold("max_p99_ms", 50), Threshold("max_p999_ms", 1000)]
    assert [verdict.sentence for verdict in judge(thresholds, run(), pairs())] == [
        "overlap@2 is 0.75, at least 0.95 was asked: fails",
        "p99 of latency is 98 ms, at most 50 ms was asked: fails",
        "p99.9 of latency is 98 ms, at most 1000 ms was asked: passes",
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "min_overlap@10",
            "overlap@10 could not be measured, for no two answers were compared, at least 0.5 was asked: fails",
        ),
        (
            "max_score_drift",
            "greatest score drift could not be measured, for no two answers share an item, at most 0.5",
        ),
        ("min_hit_rate@10", "hit rate@10 could not be measured, for no answer's next items are known, at least 0.5"),
        ("max_p99_ms", "p99 of latency could not be measured, for no call was answered, at most 0.5 ms was asked"),
        (
            "max_error_share",
            "share of errors could not be measured, for nothing was asked, at most 0.5 was asked: fails",
        ),
        (
            "min_good_share",
            "share answered within the SLO could not be measured, for no SLO was given, or nothing asked",
        ),
    ],
)
def test_what_could_not_be_measured_fails(name: str, told: str) -> None:
    (verdict,) = judge([Threshold(name, 0.5)], summarise([], slo_seconds=None), Comparing().finish())
    assert (verdict.passes, verdict.measured) == (False, None)
    assert verdict.sentence.startswith(told)
    (uncompared,) = judge([Threshold(name, 0.5)], summarise([], slo_seconds=None), None)
    assert not uncompared.passes


def test_a_measure_just_beside_its_limit_is_not_written_as_the_limit() -> None:
    comparing = Comparing()
    for index in range(20_000):
        comparing.add(index, "", answered("a"), answered("a" if index else "b"))
    (verdict,) = judge([Threshold("min_overlap@1", 1.0)], run(), comparing.finish())
    assert verdict.sentence == "overlap@1 is 0.99995, at least 1 was asked: fails"


def written(directory: Path, text: str) -> Path:
    path = directory / "gate.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_and_flags_say_thresholds_by_the_same_names(tmp_path: Path) -> None:
    path = written(tmp_path, '"min_overlap@10" = 0.95\nmax_p99_ms = 50\n')
    said = (parse_threshold("min_overlap@10=0.95"), parse_threshold("max_p99_ms=50"))
    assert read_gate(path) == said == (Threshold("min_overlap@10", 0.95), Threshold("max_p99_ms", 50.0))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"min_overlp@10" = 0.9', "min_overlp@10: no such threshold; did you mean min_overlap@K?"),
        ("max_p98_ms = 5", "max_p98_ms: no such threshold; did you mean max_p9"),
        ("min_overlap = 0.9", "min_overlap: no such threshold; did you mean min_overlap@K?"),
        ('"max_p99_ms@5" = 9', "max_p99_ms@5: no such threshold; did you mean"),
        ('"min_overlap@0" = 0.9', "min_overlap@0: K is how many items to look at; give a whole number above 0"),
        ('"min_overlap@ten" = 0.9', "min_overlap@ten: K is how many items to look at"),
        ('"min_overlap@10" = 95', "min_overlap@10 = 95; give 0 to 1"),
        ("max_p99_ms = -1", "max_p99_ms = -1; give a number of 0 or more"),
        ("max_p99_ms = nan", "max_p99_ms = nan; give a number of 0 or more"),
        ('max_p99_ms = "50"', "max_p99_ms = '50'; give a number"),
        ("max_error_share = true", "max_error_share = True; give a number"),
        ("[min_overlap]\n10 = 0.9", "min_overlap = {'10': 0.9}; give a number, as in \"min_overlap@10\" = 0.95"),
        ("min_overlap@10 = 0.9", "not TOML: "),
        ("", "has no threshold, so nothing could fail; write at least one"),
    ],
)
def test_a_bad_gate_is_one_error_with_file_name_and_remedy(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_gate(path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_gate_that_is_not_there_or_not_text_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file or directory; give a readable TOML file"):
        read_gate(tmp_path / "none.toml")
    (tmp_path / "gate.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="cannot be read: not UTF-8"):
        read_gate(tmp_path / "gate.toml")


@pytest.mark.parametrize("text", ["min_overlap@10", "min_overlap@10=", "min_overlap@10=high", "=0.5"])
def test_a_flag_that_says_no_threshold_is_one_error(text: str) -> None:
    with pytest.raises(SettingsError, match="gate: "):
        parse_threshold(text)


def test_every_threshold_is_tried_here() -> None:
    from recall_service.replay.judging import gate

    tried: Sequence[str] = [name.partition("@")[0] for name, *_ in SIDES]
    assert {name.partition("@")[0] for name in gate._MEASURES} == set(tried)
