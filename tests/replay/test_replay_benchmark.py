"""The benchmark of the replay, made small."""

import json

import pytest

from benchmarks import replay


def test_the_last_line_says_what_was_asked_and_achieved(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["--rate", "200", "--seconds", "0.5"]) == 0
    measured = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert measured["asked_rate"] == 200.0
    assert measured["achieved_rate"] == pytest.approx(200, rel=0.1)
    assert measured["errors"] == 0
    assert 0 <= measured["lag_p50_ms"] <= measured["lag_p99_ms"]
