"""k-means: scikit-learn's is the oracle, given the same starts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from item_catalog.assigning.kmeans import cheapest_codes, choices, moved_centroids, starting_centroids


def clustered(num_points: int, dims: int, seed: int) -> NDArray[np.float32]:
    random = np.random.default_rng(seed)
    middles = random.standard_normal((8, dims)) * 3
    points = middles[random.integers(8, size=num_points)] + random.standard_normal((num_points, dims))
    return points.astype(np.float32)


def inertia(points: NDArray[np.float32], centroids: NDArray[np.float32]) -> float:
    nearest = centroids[cheapest_codes(points, centroids)]
    return float(np.square(points - nearest, dtype=np.float64).sum())


@pytest.mark.parametrize(("num_codes", "dims"), [(2, 1), (8, 5), (40, 16)])
def test_each_level_of_residuals_is_as_good_as_scikit_learns(num_codes: int, dims: int):
    points = clustered(600, dims, seed=num_codes)
    for level in range(3):
        starts = starting_centroids(points, num_codes, np.random.default_rng(level))
        oracle = KMeans(num_codes, init=starts, n_init=1, max_iter=12, tol=0, algorithm="lloyd").fit(points)
        centroids = moved_centroids(points, starts, 12)
        assert inertia(points, centroids) == pytest.approx(
            inertia(points, oracle.cluster_centers_.astype(np.float32)), rel=1e-3
        )
        points = points - centroids[cheapest_codes(points, centroids)]


def test_starts_are_as_good_as_scikit_learns():
    points = clustered(800, 8, seed=1)
    ours = [inertia(points, starting_centroids(points, 20, np.random.default_rng(seed))) for seed in range(8)]
    at_random = [inertia(points, np.random.default_rng(seed).permutation(points)[:20]) for seed in range(8)]
    oracle = KMeans(20, init="k-means++", n_init=10, random_state=0).fit(points)
    assert np.mean(ours) < np.mean(at_random)
    moved = moved_centroids(points, starting_centroids(points, 20, np.random.default_rng(0)), 300)
    assert inertia(points, moved) < 1.1 * oracle.inertia_


@settings(max_examples=60)
@given(st.data())
def test_starts_are_different_points_and_all_of_them_when_few(data: st.DataObject):
    numbers = st.lists(st.sampled_from([-1.0, 0.0, 0.25, 1.0]), min_size=2, max_size=2)
    points = np.array(data.draw(st.lists(numbers, min_size=1, max_size=30)), np.float32)
    num_codes = data.draw(st.integers(1, 20))
    starts = starting_centroids(points, num_codes, np.random.default_rng(data.draw(st.integers(0, 9))))
    different = {tuple(point) for point in points.tolist()}
    assert len(starts) == min(num_codes, len(different))
    assert len({tuple(start) for start in starts.tolist()} & different) == len(starts)


def test_a_code_that_nobody_takes_starts_anew_where_a_point_is_farthest():
    points = np.array([[0], [1], [10]], np.float32)
    starts = np.array([[0.5], [-100]], np.float32)
    assert sorted(moved_centroids(points, starts, 20).ravel().tolist()) == [0.5, 10.0]


def test_no_code_starts_anew_when_every_point_is_on_its_centroid():
    points = np.zeros((3, 2), np.float32)
    centroids = moved_centroids(points, np.array([[0, 0], [5, 5]], np.float32), 3)
    assert centroids.tolist() == [[0, 0], [5, 5]]


def test_costs_are_distances_and_prices_over_many_blocks(monkeypatch: pytest.MonkeyPatch):
    points, centroids = clustered(50, 3, seed=0), clustered(6, 3, seed=1)
    prices = np.array([0, 1, 2, 0, 40, np.inf], np.float32)
    costs = np.square(points[:, None] - centroids).sum(axis=2) + prices
    monkeypatch.setattr("item_catalog.assigning.kmeans._BLOCK_COSTS", 60)
    chosen = choices(points, centroids, prices)
    ascending = np.sort(costs, axis=1)
    assert chosen.codes.tolist() == costs.argmin(axis=1).tolist()
    assert cheapest_codes(points, centroids, prices).tolist() == chosen.codes.tolist()
    np.testing.assert_allclose(chosen.regrets, ascending[:, 1] - ascending[:, 0], atol=1e-4)
