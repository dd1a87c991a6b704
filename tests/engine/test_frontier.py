"""What a proven search goes back to: the best first, ties as in a beam that never prunes, and nothing is forgotten."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_service.engine.beams import BeamRows
from recall_service.engine.frontier import Frontier

CPU = torch.device("cpu")


def rows_of(nodes: list[int], log_probs: list[list[float]]) -> BeamRows:
    """Rows at given nodes, with the slots 10 * node + step."""
    steps = torch.tensor(log_probs)
    node = torch.tensor(nodes)
    return BeamRows(
        node=node,
        score=steps.sum(1),
        tokens=torch.zeros_like(steps, dtype=torch.int64),
        log_probs=steps,
        ranks=torch.zeros_like(steps, dtype=torch.int32),
        slots=10 * node[:, None] + torch.arange(steps.shape[1] - 1),
    )


def nodes_of(groups: list[BeamRows]) -> list[list[int]]:
    return [rows.node.tolist() for rows in groups]


@settings(derandomize=True, max_examples=50)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 12), depth=st.integers(1, 4))
def test_tie_order_compares_scores_of_ever_shorter_prefixes_and_then_nodes(seed: int, count: int, depth: int) -> None:
    rng = np.random.default_rng(seed)
    steps = -rng.integers(0, 3, (count, depth)).astype(np.float32)
    nodes = rng.permutation(count).tolist()
    rows = rows_of(nodes, steps.tolist()) if count else BeamRows.root(CPU).gather(slice(0))
    prefix_scores = steps.cumsum(1)
    expected = sorted(range(count), key=lambda row: (*(-prefix_scores[row][::-1]), nodes[row]))
    assert rows.in_tie_order().node.tolist() == [nodes[row] for row in expected]


def test_the_best_are_taken_of_all_depths_or_of_one_and_the_others_stay() -> None:
    frontier = Frontier(CPU)
    frontier.add(rows_of([4, 7, 9], [[-1.0], [-5.0], [-2.0]]))
    frontier.add(rows_of([3, 8], [[-1.0, -2.0], [-0.5, -0.5]]))
    frontier.add(rows_of([5], [[-4.0]]))
    assert nodes_of(frontier.take(3)) == [[4, 9], [8]]
    assert float(frontier.best) == -3.0
    assert nodes_of(frontier.take(9, depth=1)) == [[5, 7]]
    assert [slots.tolist() for slots in frontier.slots()] == [[], [[30]]]
    assert nodes_of(frontier.take(0)) == nodes_of(frontier.take(1, depth=1)) == []
    assert nodes_of(frontier.take(1)) == [[3]]
    assert float(frontier.best) == -np.inf


def test_rows_that_tie_are_handed_out_in_tie_order() -> None:
    """They came in another one; the row whose parent scores more leads, then the lower node."""
    frontier = Frontier(CPU)
    frontier.add(rows_of([6, 2], [[-3.0, -1.0], [-2.0, -2.0]]))
    frontier.add(rows_of([1, 0], [[-3.0, -1.0], [-1.0, -3.0]]))
    assert nodes_of(frontier.take(4)) == [[0, 2, 1, 6]]


def test_what_is_given_up_is_remembered_by_its_best_score() -> None:
    frontier = Frontier(CPU)
    frontier.add(rows_of([1, 2, 3], [[-1.0], [-2.0], [-6.0]]))
    frontier.add(rows_of([4, 5], [[-1.0, -2.0], [-1.0, -4.0]]))
    frontier.drop_below(torch.tensor(-5.0))
    assert float(frontier.best_dropped) == -6.0
    frontier.keep_best(2)
    assert float(frontier.best_dropped) == -3.0
    assert float(frontier.best) == -1.0
    assert nodes_of(frontier.take(9)) == [[1, 2]]
    assert float(frontier.best) == -3.0
    frontier.add(rows_of([1], [[-1.0]]))
    frontier.keep_best(0)
    assert float(frontier.best_dropped) == -1.0
    assert frontier.take(9) == []
