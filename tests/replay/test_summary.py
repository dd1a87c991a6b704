"""Summaries: whatever they say follows from the JSON lines, and calls that do not count are left out."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.replay.judging.categories import MAX_NAMES
from recall_service.replay.judging.percentiles import Percentiles
from recall_service.replay.judging.recorded import read_outcomes
from recall_service.replay.judging.summary import summarise
from tests.replay.fabricated import answered, logged_run, outcome, write

TIMES = st.floats(0, 100)


@given(
    st.lists(TIMES, min_size=1, max_size=300), st.sampled_from([("p50", 50), ("p95", 95), ("p99", 99), ("p999", 99.9)])
)
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(
    values: list[float], asked: tuple[str, float]
) -> None:
    name, percent = asked
    found = getattr(Percentiles.of(values), name)
    needed = math.ceil(round(percent * len(values) / 100, 9))
    assert found == sorted(values)[needed - 1]
    assert sum(value <= found for value in values) >= needed


def test_percentiles_of_nothing_are_none() -> None:
    assert Percentiles.of([]) is None


def test_percentiles_recomputed_from_the_json_lines_are_the_summary_s(tmp_path: Path) -> None:
    path = write(tmp_path / "outcomes.jsonl", logged_run(997)[1])
    summary = summarise(read_outcomes(path), slo_seconds=0.02)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    latency = sorted(line["done_seconds"] - line["intended_seconds"] for line in lines)
    service = sorted(line["done_seconds"] - line["sent_seconds"] for line in lines)
    lag = sorted(line["sent_seconds"] - line["intended_seconds"] for line in lines)
    for found, values in ((summary.overall.latency, latency), (summary.service, service), (summary.lag, lag)):
        assert found is not None
        assert found.count == 997
        assert [found.p50, found.p90, found.p95] == [values[499 - 1], values[898 - 1], values[948 - 1]]
        assert [found.p99, found.p999, found.max] == [values[988 - 1], values[997 - 1], values[-1]]
    assert summary.overall.good == sum(value <= 0.02 for value in latency)


def test_a_stall_shows_in_the_latency_of_all_that_queued_behind_it() -> None:
    # 100 a second for 10 s, each served in 1 ms, one at a time; the server stalls for 1 s at 5 s.
    free_at, run = 0.0, []
    for index in range(1000):
        intended = index / 100
        start = max(intended, free_at)
        free_at = start + (1.0 if index == 500 else 0.001)
        run.append(outcome(index, intended=intended, lag=start - intended, service=free_at - start))
    summary = summarise(run, slo_seconds=0.1)
    assert summary.overall.latency is not None
    assert summary.service is not None
    assert summary.overall.latency.p99 > 0.9
    assert summary.service.p99 == pytest.approx(0.001)  # what a closed loop would have told
    assert summary.overall.good_share == pytest.approx(0.89, abs=0.01)


def test_warm_up_and_what_the_replay_cancelled_are_counted_and_nothing_else() -> None:
    counted = [outcome(index, intended=index * 0.1) for index in range(5)]
    apart = [
        outcome(10, service=99.0, is_warm_up=True),
        outcome(11, service=99.0, code="CANCELLED", was_cancelled=True),
        outcome(12, service=99.0, code="UNAVAILABLE", is_warm_up=True),
    ]
    alone, together = summarise(counted, slo_seconds=1.0), summarise(counted + apart, slo_seconds=1.0)
    assert (together.warm_up, together.cancelled) == (2, 1)
    assert together.to_json() == alone.to_json() | {"warm_up": 2, "cancelled": 1}


def test_refusals_do_not_make_latency_look_better_nor_do_deadlines_vanish() -> None:
    run = [outcome(index, service=0.1) for index in range(10)]
    run += [
        outcome(20 + index, service=0.001, code="RESOURCE_EXHAUSTED", error_reason="OVERLOADED") for index in range(80)
    ]
    run += [outcome(100 + index, service=0.5, code="DEADLINE_EXCEEDED") for index in range(10)]
    summary = summarise(run, slo_seconds=0.2)
    assert summary.overall.latency is not None
    assert summary.overall.latency.count == 20
    assert summary.overall.latency.p50 == pytest.approx(0.1)
    assert summary.overall.latency.p90 == pytest.approx(0.5)
    assert summary.overall.failures == {"RESOURCE_EXHAUSTED OVERLOADED": 80, "DEADLINE_EXCEEDED": 10}
    assert summary.overall.error_share == 0.9
    assert summary.overall.good_share == 0.1


def test_rates_are_of_the_schedule_and_of_the_sending() -> None:
    run = [outcome(index, intended=index * 0.01, lag=index * 0.01) for index in range(101)]
    summary = summarise(run, slo_seconds=None)
    assert summary.asked_rate == pytest.approx(100)
    assert summary.achieved_rate == pytest.approx(50)
    assert summary.goodput is None
    assert summary.duration_seconds == pytest.approx(2.01)


def test_groups_are_by_scene_and_by_the_catalogue_that_answered() -> None:
    run = [
        outcome(0, scene="feed", answer=answered("ab", catalog_version="c1")),
        outcome(1, scene="feed", answer=answered("a", catalog_version="c2", short_reason="BEAM_TOO_NARROW")),
        outcome(2, scene="", code="UNAVAILABLE"),
    ]
    summary = summarise(run, slo_seconds=None)
    assert {name: group.requests for name, group in summary.by_scene.items()} == {"(none)": 1, "feed": 2}
    assert {name: group.answered for name, group in summary.by_catalog_version.items()} == {"c1": 1, "c2": 1}
    assert summary.by_catalog_version["c2"].short == {"BEAM_TOO_NARROW": 1}
    assert summary.overall.short_share == 0.5
    assert summary.overall.served_from == {"ENGINE": 2}


def test_scenes_made_up_by_callers_do_not_grow_the_summary() -> None:
    summary = summarise((outcome(index, scene=f"scene {index}") for index in range(500)), slo_seconds=None)
    assert len(summary.by_scene) == MAX_NAMES + 1
    assert summary.by_scene["other"].requests == 500 - MAX_NAMES
    assert sum(group.requests for group in summary.by_scene.values()) == 500


def test_nothing_measured_is_a_summary_too() -> None:
    summary = summarise([], slo_seconds=0.1)
    assert summary.overall.requests == 0
    assert summary.overall.latency is None
    assert summary.overall.error_share is None
    assert json.loads(json.dumps(summary.to_json()))["overall"]["latency"] is None


def test_moments_of_numpy_and_json_do_not_mix() -> None:
    document = summarise(logged_run(50)[1], slo_seconds=0.05).to_json()
    assert json.loads(json.dumps(document, allow_nan=False))["overall"]["requests"] == 50
    assert not any(isinstance(value, np.generic) for value in document.values())
