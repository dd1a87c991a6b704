"""Counters and histograms against prometheus_client's own, and under threads."""

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import prometheus_client
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from recall_service.observability.labels import OTHER, Children
from recall_service.observability.tallies import Count, Counter, Histogram

EDGES = (0.001, 0.5, 1.0, 2.5)
NUM_THREADS, NUM_VALUES = 4, 5_000


def exposed(registry: CollectorRegistry) -> list[str]:
    """What a scrape reads, without the moments of creation that only the other library keeps."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@settings(max_examples=100)
@given(st.lists(st.floats(0, 5) | st.sampled_from(EDGES), max_size=1200))
def test_a_histogram_exposes_what_prometheus_client_would(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    own = Histogram("seconds", "Some.", ["stage"], EDGES, ours).labels("map")
    other = prometheus_client.Histogram("seconds", "Some.", ["stage"], buckets=EDGES, registry=theirs).labels("map")
    for value in values:
        own.observe(value)
        other.observe(value)
    sums = (
        ours.get_sample_value("seconds_sum", {"stage": "map"}),
        theirs.get_sample_value("seconds_sum", {"stage": "map"}),
    )
    assert sums[0] == pytest.approx(sums[1])  # they add in another order
    assert [line for line in exposed(ours) if "_sum" not in line] == [
        line for line in exposed(theirs) if "_sum" not in line
    ]


@given(st.lists(st.integers(0, 1_000), max_size=1200))
def test_a_counter_exposes_what_prometheus_client_would(amounts: list[int]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    own = Counter("rows_total", "Some.", ["phase"], ours).labels("decode")
    other = prometheus_client.Counter("rows_total", "Some.", ["phase"], registry=theirs).labels("decode")
    for amount in amounts:
        own.inc(amount)
        other.inc(amount)
    assert exposed(ours) == exposed(theirs)


def test_nothing_is_lost_or_counted_twice_while_someone_scrapes() -> None:
    registry = CollectorRegistry()
    count = Counter("calls_total", "Some.", [], registry).labels()
    buckets = Histogram("seconds", "Some.", [], EDGES, registry).labels()

    def report(_: int) -> None:
        for _ in range(NUM_VALUES):
            count.inc()
            buckets.observe(0.75)

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        reports = [threads.submit(report, number) for number in range(NUM_THREADS)]
        scraped = []
        while not all(each.done() for each in reports):
            scraped.append(registry.get_sample_value("calls_total"))
    assert scraped == sorted(scraped)
    assert registry.get_sample_value("calls_total") == NUM_THREADS * NUM_VALUES
    assert registry.get_sample_value("seconds_count") == NUM_THREADS * NUM_VALUES
    assert registry.get_sample_value("seconds_bucket", {"le": "0.5"}) == 0
    assert registry.get_sample_value("seconds_sum") == 0.75 * NUM_THREADS * NUM_VALUES


def test_what_waits_is_bounded_though_nobody_scrapes() -> None:
    registry = CollectorRegistry()
    count, buckets = (
        Counter("calls_total", "Some.", [], registry).labels(),
        Histogram("seconds", "Some.", [], EDGES, registry).labels(),
    )
    for _ in range(10_000):
        count.inc()
        buckets.observe(1.0)
    assert len(count._waiting) < 1_000
    assert len(buckets._waiting) < 1_000


def test_those_told_of_the_same_calls_are_added_up_in_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one call in some hundreds would wait for all of them."""
    monkeypatch.setattr(random, "randint", random.Random(5).randint)
    registry = CollectorRegistry()
    tallies = [Histogram(f"seconds_{number}", "Some.", [], EDGES, registry).labels() for number in range(12)]
    most_at_once = 0
    for _ in range(3_000):
        before = [len(buckets._waiting) for buckets in tallies]
        for buckets in tallies:
            buckets.observe(1.0)
        added_up = sum(len(buckets._waiting) <= waited for buckets, waited in zip(tallies, before, strict=True))
        most_at_once = max(most_at_once, added_up)
    assert 1 <= most_at_once <= 3


def test_an_exemplar_stands_at_its_bucket_until_the_next() -> None:
    buckets = Histogram("seconds", "Some.", [], EDGES, CollectorRegistry()).labels()
    for value, trace in ((0.7, "a"), (0.8, "b"), (9.0, "c")):
        buckets.observe(value, {"trace_id": trace})
    buckets.observe(0.9)
    read, _ = buckets.read()
    assert [bucket.exemplar and (bucket.exemplar.labels["trace_id"], bucket.exemplar.value) for bucket in read] == [
        None,
        None,
        ("b", 0.8),
        None,
        ("c", 9.0),
    ]


@pytest.mark.parametrize("make", [Counter, lambda *given: Histogram(*given[:3], EDGES, *given[3:])])
def test_a_name_given_twice_is_refused(make: type[Collector]) -> None:
    registry = CollectorRegistry()
    make("calls_total", "Some.", [], registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        make("calls_total", "Some.", [], registry)


def bind(*values: str) -> Iterable[str]:
    return values


def test_children_are_those_of_known_values_and_other() -> None:
    by_two = Children(bind, ["local", "redis"], ["hit"])
    assert len(by_two) == 3 * 2
    assert by_two["redis", "hit"] == ("redis", "hit")
    assert by_two["redis", "exploded"] == ("redis", OTHER)
    assert by_two["", "hit"] == (OTHER, "hit")
    by_one = Children(bind, ["map"])
    assert (by_one["map"], by_one["nap"]) == (("map",), (OTHER,))
    assert (len(by_two), len(by_one)) == (6, 2)  # looking for what is not there adds nothing


def test_counts_are_whole_numbers_however_large() -> None:
    count = Count()
    for _ in range(3):
        count.inc(2**53 + 1)
    assert count.read() == 3 * (2**53 + 1)
