"""Codes of limited capacity: the limit holds, at a cost close to that of an exact assignment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from item_catalog.assigning.balanced_codes import balancing_prices, capacity_of, codes_within
from item_catalog.assigning.kmeans import cheapest_codes


def squared_distances(points: NDArray[np.float32], centroids: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.square(points[:, None].astype(np.float64) - centroids).sum(axis=2)


def least_cost(distances: NDArray[np.float64], capacity: int) -> float:
    """Every place of every code a column of its own: the assignment problem, solved exactly."""
    places = np.repeat(distances, capacity, axis=1)
    return float(places[linear_sum_assignment(places)].sum())


@pytest.mark.parametrize(("balance", "most"), [(1.0, 1.25), (1.1, 1.1), (1.5, 1.01), (3.0, 1.01)])
@pytest.mark.parametrize("seed", range(5))
def test_costs_about_what_an_exact_assignment_does(balance: float, most: float, seed: int):
    """And exactly that where the auction ended with nothing in excess."""
    random = np.random.default_rng(seed)
    points = (random.standard_normal((120, 4)) * random.gamma(1, 1, (120, 1))).astype(np.float32)
    centroids = points[:8].copy()
    capacity = capacity_of(120, 8, balance)
    prices = balancing_prices(points, centroids, capacity, 3_000)
    codes = codes_within(points, centroids, prices, np.full(8, capacity))
    distances = squared_distances(points, centroids)
    ratio = distances[np.arange(120), codes].sum() / least_cost(distances, capacity)
    assert np.bincount(codes).max() <= capacity
    assert ratio <= most
    if np.bincount(cheapest_codes(points, centroids, prices)).max() <= capacity:
        assert ratio == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_few_raises_are_better_than_none(seed: int):
    random = np.random.default_rng(seed)
    points = random.standard_normal((400, 3)).astype(np.float32)
    centroids = points[:16].copy()
    distances = squared_distances(points, centroids)
    costs = []
    for raises in (0, 30):
        prices = balancing_prices(points, centroids, 30, raises)
        codes = codes_within(points, centroids, prices, np.full(16, 30))
        costs.append(distances[np.arange(400), codes].sum())
    assert costs[1] < costs[0]


def test_prices_are_zero_where_nothing_is_crowded():
    points = np.array([[0], [1], [10], [11]], np.float32)
    assert balancing_prices(points, np.array([[0], [10]], np.float32), 2, 9).tolist() == [0, 0]


def test_a_price_sends_exactly_the_excess_on():
    points = np.array([[0], [1], [2], [3], [9]], np.float32)
    centroids = np.array([[1], [9]], np.float32)
    prices = balancing_prices(points, centroids, 3, 9)
    costs = squared_distances(points, centroids) + prices
    assert costs.argmin(axis=1).tolist() == [0, 0, 0, 1, 1]


@settings(max_examples=150)
@given(st.data())
def test_room_is_never_exceeded_and_everybody_is_placed(data: st.DataObject):
    """Ties, repeated points and prices of any kind included."""
    num_codes = data.draw(st.integers(1, 6))
    numbers = st.sampled_from([-3.0, 0.0, 0.5, 1.0, 2.0])
    centroids = np.array(data.draw(st.lists(numbers, min_size=num_codes, max_size=num_codes)), np.float32)[:, None]
    room = np.array(data.draw(st.lists(st.integers(0, 5), min_size=num_codes, max_size=num_codes)))
    count = data.draw(st.integers(0, int(room.sum())))
    points = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), np.float32)[:, None]
    prices = np.array(
        data.draw(st.lists(st.floats(0, 9, width=32), min_size=num_codes, max_size=num_codes)), np.float32
    )
    left = room.copy()
    codes = codes_within(points, centroids, prices, left)
    assert (left >= 0).all()
    assert (np.bincount(codes, minlength=num_codes) + left).tolist() == room.tolist()


@settings(max_examples=200)
@given(st.integers(1, 10**9), st.integers(1, 65_536), st.floats(1, 1e300) | st.just(np.inf))
def test_capacities_have_a_place_for_all(num_points: int, num_codes: int, balance: float):
    capacity = capacity_of(num_points, num_codes, balance)
    assert capacity * num_codes >= num_points
    assert capacity <= num_points
