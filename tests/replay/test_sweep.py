"""Sweeps against a simulated server with one place and a fixed time to serve, at Poisson arrivals (M/D/1)."""

import json
import math

import numpy as np
import pytest

from recall_service.errors import SettingsError
from recall_service.replay.judging.summary import Summary, summarise
from recall_service.replay.judging.sweep import parse_rates, sweep
from recall_service.replay.outcome import Outcome
from tests.replay.fabricated import outcome

SERVICE_SECONDS = 0.01  # 100 a second at most
SLO_SECONDS = 0.1


def served(rate: float, *, requests: int = 4000) -> list[Outcome]:
    """What comes of so many requests: each waits until those before it are served."""
    random = np.random.default_rng(0)
    intended = np.cumsum(random.exponential(1 / rate, requests)).tolist()
    free_at, outcomes = 0.0, []
    for index, moment in enumerate(intended):
        free_at = max(free_at, moment) + SERVICE_SECONDS
        outcomes.append(outcome(index, intended=moment, service=free_at - moment))
    return outcomes


class Server:
    """Remembers the rates it was asked for."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    async def run_rate(self, rate: float) -> Summary:
        self.rates.append(rate)
        return summarise(served(rate), slo_seconds=SLO_SECONDS)


def test_the_simulated_server_is_that_of_the_theory() -> None:
    latency = summarise(served(80, requests=20_000), slo_seconds=SLO_SECONDS).overall.latency
    load = 80 * SERVICE_SECONDS
    assert latency is not None
    assert latency.mean == pytest.approx(SERVICE_SECONDS * (1 + load / (2 * (1 - load))), rel=0.1)


async def test_the_knee_is_the_last_rate_before_the_queue_outgrows_the_slo() -> None:
    server = Server()
    found = await sweep(server.run_rate, [10, 20, 40, 60, 80, 90, 95, 98, 105, 120, 200], slo_seconds=SLO_SECONDS)
    assert found.knee is not None
    assert 60 <= found.knee < 100
    assert [point.is_sustained for point in found.points] == [True] * (len(found.points) - 1) + [False]
    assert server.rates[-2] == found.knee
    assert 200 not in server.rates  # what is beyond the knee is not run
    assert found.sentence == (
        f"the knee is at {found.knee:g} requests per second: {server.rates[-1]:g} are not sustained at an SLO of 100 ms"
    )
    last = found.points[-1].summary
    assert last.overall.latency is not None
    assert last.overall.latency.p99 > SLO_SECONDS
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["knee"] == found.knee


async def test_a_rate_of_which_too_few_are_good_is_not_sustained_though_those_are_fast() -> None:
    async def refuse_some(rate: float) -> Summary:
        fast = [outcome(index) for index in range(94)]
        return summarise(fast + [outcome(94 + i, code="RESOURCE_EXHAUSTED") for i in range(6)], slo_seconds=SLO_SECONDS)

    found = await sweep(refuse_some, [100, 200], slo_seconds=SLO_SECONDS)
    assert found.knee is None
    assert found.sentence == "not even 100 requests per second are sustained at an SLO of 100 ms"


async def test_a_rate_of_which_enough_are_good_is_not_sustained_when_its_p99_is_not() -> None:
    async def slow_tail(rate: float) -> Summary:
        return summarise([outcome(i, service=0.01 if i < 97 else 0.2) for i in range(100)], slo_seconds=SLO_SECONDS)

    found = await sweep(slow_tail, [100], slo_seconds=SLO_SECONDS)
    assert found.points[0].summary.overall.good_share == 0.97
    assert found.knee is None


async def test_a_knee_beyond_the_highest_rate_is_said_to_be() -> None:
    found = await sweep(Server().run_rate, [5, 10], slo_seconds=SLO_SECONDS)
    assert found.knee == 10
    assert found.sentence == "10 requests per second, the highest rate tried, are sustained at an SLO of 100 ms"


async def test_a_target_that_is_gone_ends_the_sweep_with_no_knee() -> None:
    async def nothing(rate: float) -> Summary:
        return summarise([], slo_seconds=SLO_SECONDS)

    found = await sweep(nothing, [100, 200], slo_seconds=SLO_SECONDS)
    assert (found.knee, len(found.points)) == (None, 1)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("100", (100.0,)),
        ("100,200,450.5", (100.0, 200.0, 450.5)),
        ("100:1600:2", (100.0, 200.0, 400.0, 800.0, 1600.0)),
        ("100:1599:2", (100.0, 200.0, 400.0, 800.0)),
        ("100:100:2", (100.0,)),
        ("1:1000:10", (1.0, 10.0, 100.0, 1000.0)),
    ],
)
def test_rates_are_listed_or_geometric(text: str, rates: tuple[float, ...]) -> None:
    assert parse_rates(text) == pytest.approx(rates)


def test_the_highest_rate_of_a_series_is_not_lost_to_rounding() -> None:
    for steps in range(1, 40):
        rates = parse_rates(f"10:{10 * 1.1**steps!r}:1.1")
        assert len(rates) == steps + 1
        assert math.isclose(rates[-1], 10 * 1.1**steps)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("fast", "not numbers"),
        ("", "not numbers"),
        ("100,,200", "not numbers"),
        ("200,100", "not positive rates that ascend"),
        ("100,100", "not positive rates that ascend"),
        ("0,100", "not positive rates that ascend"),
        ("100,inf", "not positive rates that ascend"),
        ("nan", "not positive rates that ascend"),
        ("100:1600", "no series of rates"),
        ("100:1600:1", "no series of rates"),
        ("1600:100:2", "no series of rates"),
        ("100:inf:2", "no series of rates"),
        ("1,2:3", "no series of rates"),
        ("0:100:2", "no series of rates"),
    ],
)
def test_what_are_no_rates_is_one_error(text: str, told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_rates(text)
    assert f"sweep {text!r}: {told}" in str(caught.value)
    assert "give rates as 100,200,400 or as FIRST:HIGHEST:FACTOR" in str(caught.value)
