"""The demo from end to end, at a small size: the real server as a process, asked over gRPC, held to brute force."""

from pathlib import Path

import pytest

from recall_service.demo.prepare import DemoSettings
from recall_service.demo.run import run_demo

SETTINGS = DemoSettings(seed=3, num_items=600, num_train_users=200, num_held_out_users=6, max_seconds=2.0)


def test_a_small_demo_answers_validly_and_equals_brute_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_demo(tmp_path, SETTINGS)
    assert figures["items"] == figures["valid"] == figures["unique"] == 100
    assert figures["all_answers_valid"]
    assert figures["equals_brute_force"]
    assert figures["cached_from"] == "LOCAL_CACHE"
    assert figures["users"] == 6
    assert figures["filtered_items"] == figures["filtered_valid"] == min(100, figures["filtered_left"]) > 0
    assert figures["filtered_proven"] == figures["filtered_left"]  # fewer than the beam is wide: nothing was pruned
    assert figures["filtered_equals_brute_force"]
    assert figures["update_live_ms"] > 0
    assert figures["update_seen"]
    assert figures["update_equals_brute_force"]
    assert figures["update_undone"]
    assert 0 <= figures["proven_count"] <= 100
    shown = capsys.readouterr().out
    assert "really took next" in shown
    assert "Markov floor" in shown
    assert "then not among 100, then at rank 1" in shown
