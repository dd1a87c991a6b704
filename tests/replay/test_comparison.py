"""Comparing answers pair by pair: the same answers differ in nothing, and what differs is found and named."""

import json
from collections import Counter

import numpy as np
import pytest

from recall_service.replay.asked import Answered
from recall_service.replay.judging.comparing import Comparing
from recall_service.replay.judging.comparison import Comparison
from recall_service.replay.judging.findings import findings
from recall_service.replay.judging.frequent import FrequentItems
from recall_service.replay.judging.overlap import match, overlap_curve
from recall_service.replay.judging.reservoir import Reservoir
from tests.replay.fabricated import answered, drifted, logged_run, without_item


def compared(*pairs: tuple[Answered | None, Answered | None]) -> Comparison:
    comparing = Comparing()
    for index, (reference, candidate) in enumerate(pairs):
        comparing.add(index, "feed", reference, candidate)
    return comparing.finish()


def test_the_same_answers_differ_in_nothing() -> None:
    comparison = compared(*((one.expected, one.expected) for one in logged_run(40)[0]))
    assert comparison.overall.pairs == comparison.overall.identical == 40
    assert comparison.overall.overlap == (1.0,) * 20
    assert comparison.overall.rank_correlation == 1
    assert comparison.overall.max_score_drift == 0
    assert (comparison.overall.lost, comparison.overall.gained) == (0, 0)
    assert comparison.worst == ()
    assert "All 40 answers hold the same items in the same order as those of the log." in findings(
        comparison, "the log"
    )


def test_a_removed_item_is_named() -> None:
    questions, outcomes = logged_run(300)
    removed = next(iter(questions)).expected.item_ids[0]  # type: ignore[union-attr]
    comparing = Comparing()
    for one in outcomes:
        comparing.add(one.index, one.scene, one.answer, without_item(one, removed).answer)
    comparison = comparing.finish()
    holding = [one for one in outcomes if one.answer is not None and removed in one.answer.item_ids]
    assert comparison.most_lost[0].item_id == removed
    assert comparison.most_lost[0].lost == len(holding) > 1
    assert comparison.most_lost[0].gained == 0
    assert comparison.overall.overlap_whole == pytest.approx(1 - len(holding) / 300 / 20)
    assert set(comparison.by_versions) == {"c1 -> c2"}
    told = findings(comparison, "the log")
    assert f"Lost most, and nowhere gained: {removed} (in {len(holding)} answers)." in told
    assert "The catalogue changed (c1 to c2)." in told


def test_a_changed_weight_is_told_by_the_drift_of_scores() -> None:
    _, outcomes = logged_run(20)
    comparing = Comparing()
    for one in outcomes:
        comparing.add(one.index, one.scene, one.answer, drifted(one, 0.25 if one.index == 7 else 0.0).answer)
    comparison = comparing.finish()
    assert comparison.overall.max_score_drift == pytest.approx(0.25)
    assert comparison.overall.mean_score_drift == pytest.approx(0.25 / 20)
    assert comparison.overall.identical == 20
    assert [example.index for example in comparison.worst] == [7]
    assert "Scores of shared items drift by up to 0.25, 0.0125 on average." in findings(comparison, "the log")


def test_means_are_those_of_the_pairs_whatever_their_lengths() -> None:
    random = np.random.default_rng(3)
    pairs = []
    for _ in range(60):
        lists = [random.choice(list("abcdefghij"), random.integers(1, 9), replace=False).tolist() for _ in range(2)]
        pairs.append((answered(lists[0]), answered(lists[1])))
    found = compared(*pairs).overall
    for k in (1, 3, 8, 50):
        curves = [overlap_curve(match(one.item_ids, other.item_ids)) for one, other in pairs]
        assert found.overlap_at(k) == pytest.approx(np.mean([curve[min(k, len(curve)) - 1] for curve in curves]))


def test_the_worst_come_first_and_are_few() -> None:
    pairs = [
        (answered(["a", "b", "c", "d"]), answered(["a", "b", "c", "d"][:kept] or ["x"])) for kept in (3, 0, 4, 1, 2)
    ]
    comparison = compared(*pairs)
    assert [example.index for example in comparison.worst] == [1, 3, 4, 0]
    assert comparison.worst[0].lost == ("a", "b", "c")  # the first few of four
    assert comparison.worst[0].num_lost == 4
    assert comparison.worst[0].gained == ("x",)
    many = compared(*(pairs * 20))
    assert [example.overlap for example in many.worst] == [0.0] * 20
    assert [example.index for example in many.worst] == list(range(1, 100, 5))


def test_items_in_another_order_are_an_example_though_the_overlap_is_whole() -> None:
    comparison = compared((answered("abc"), answered("acb", [-1.0, -3.0, -2.0])))
    assert comparison.overall.overlap_whole == 1
    assert comparison.overall.identical == 0
    assert comparison.worst[0].rank_correlation == pytest.approx(1 / 3)


def test_questions_that_one_side_did_not_answer_are_counted_apart() -> None:
    comparison = compared((answered("a"), None), (None, answered("a")), (None, None), (answered("a"), answered("a")))
    overall = comparison.overall
    assert (overall.pairs, overall.only_reference, overall.only_candidate, overall.neither) == (1, 1, 1, 1)
    assert "1 question was answered by the log alone." in findings(comparison, "the log")


def test_short_answers_are_counted_on_either_side() -> None:
    short = answered("a", short_reason="CATALOG_EXHAUSTED")
    comparison = compared((answered("ab"), short), (short, answered("ab")), (answered("ab"), short))
    assert (comparison.overall.reference_short, comparison.overall.candidate_short) == (1, 2)
    assert "Short answers: 1 of the log, 2 of the target." in findings(comparison, "the log")


def test_nothing_compared_is_said() -> None:
    comparison = compared((answered("a"), None))
    assert comparison.overall.overlap_at(10) is None
    assert findings(comparison, "against")[0].endswith("nothing could be compared.")


def test_empty_answers_are_alike_and_an_empty_one_is_unlike_any_other() -> None:
    comparison = compared((answered(""), answered("")), (answered("ab"), answered("")))
    assert comparison.overall.overlap == (0.5, 0.5)
    assert comparison.overall.max_score_drift is None
    assert comparison.overall.rank_correlation is None


def test_hits_are_of_both_over_the_same_pairs() -> None:
    comparing = Comparing()
    comparing.add(0, "feed", answered("abc"), answered("cab"), ["c"])
    comparing.add(1, "feed", answered("abc"), answered("abc"), ["z"])
    comparing.add(2, "feed", answered("abc"), answered("abc"))
    overall = comparing.finish().overall
    assert overall.hit_pairs == 2
    assert overall.to_json()["reference_hit_rate"]["1"] == 0
    assert overall.to_json()["reference_hit_rate"]["5"] == 0.5
    assert overall.to_json()["candidate_hit_rate"]["1"] == 0.5


def test_a_comparison_is_json() -> None:
    questions, outcomes = logged_run(30)
    comparing = Comparing()
    for one in outcomes:
        comparing.add(
            one.index, one.scene, one.answer, without_item(one, "item0007").answer, questions[one.index].next_items
        )
    document = json.loads(json.dumps(comparing.finish().to_json(), allow_nan=False))
    assert document["overall"]["pairs"] == 30
    assert set(document["by_scene"]) == {"feed", "search", "mail"}


def test_memory_does_not_grow_with_scenes_nor_with_catalogues() -> None:
    comparing = Comparing()
    for index in range(300):
        comparing.add(index, f"scene {index}", answered("a"), answered("a", catalog_version=f"c{index}"))
    comparison = comparing.finish()
    assert (len(comparison.by_scene), len(comparison.by_versions)) == (65, 65)
    assert comparison.by_scene["other"].pairs == 300 - 64


def test_frequent_items_are_found_and_never_counted_too_low_by_more_than_the_error() -> None:
    random = np.random.default_rng(0)
    stream = [f"item{int(number)}" for number in random.zipf(1.3, 20_000)]
    truth, counted = Counter(stream), FrequentItems(capacity=50)
    for start in range(0, len(stream), 10):
        counted.add(stream[start : start + 10])
    found = dict(counted.most_common(200))
    assert counted.error <= len(stream) / 50
    assert len(found) <= 100
    assert all(truth[item] - counted.error <= count <= truth[item] for item, count in found.items())
    assert [item for item, _ in counted.most_common(3)] == [item for item, _ in truth.most_common(3)]


def test_a_sample_is_fair_and_the_same_for_the_same_seed() -> None:
    def sampled(seed: int) -> np.ndarray:
        reservoir = Reservoir(1000, seed)
        for start in range(0, 20_000, 100):
            reservoir.add(np.repeat(np.arange(start, start + 100.0)[:, None], 2, axis=1))
        return reservoir.points

    first = sampled(1)
    assert np.array_equal(first, sampled(1))
    assert not np.array_equal(first, sampled(2))
    assert first.shape == (1000, 2)
    assert len(np.unique(first[:, 0])) == 1000
    assert abs(first[:, 0].mean() - 10_000) < 1000


def test_a_sample_of_few_points_is_all_of_them() -> None:
    reservoir = Reservoir(10)
    reservoir.add(np.ones((3, 2)))
    assert reservoir.points.shape == (3, 2)
