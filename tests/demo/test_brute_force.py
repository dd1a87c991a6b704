"""Brute force itself, against sums of log-probabilities taken one token at a time."""

from pathlib import Path

import numpy as np
import torch

from recall_service.demo.brute_force import brute_force
from tests.make_checkpoint import make_model, write_checkpoint


def test_scores_and_beams_are_those_of_single_forwards(tmp_path: Path) -> None:
    model = make_model("qwen3", seed=3)
    write_checkpoint(model, tmp_path)
    sids = np.array([[1, 0], [0, 1], [0, 0], [2, 2], [0, 1]])
    level_tokens = np.array([[3, 4, 5], [6, 7, 8]])
    prompt = np.array([1, 2, 9])
    truth = brute_force(tmp_path, prompt, sids, level_tokens)

    distinct = [(0, 0), (0, 1), (1, 0), (2, 2)]
    expected = []
    for sid in distinct:
        path = [*prompt.tolist(), 3 + sid[0], 6 + sid[1]]
        with torch.inference_mode():
            log_probs = model(torch.tensor([path])).logits[0].double().log_softmax(-1)
        expected.append(float(log_probs[2, path[3]] + log_probs[3, path[4]]))
    np.testing.assert_allclose(truth.scores[-1], expected, atol=1e-5)
    np.testing.assert_allclose(truth.top(2), sorted(expected, reverse=True)[:2], atol=1e-5)

    ranking = sorted(range(4), key=lambda leaf: -expected[leaf])
    beam, scores = truth.beam(width=3)  # as wide as the first level: nothing is lost
    assert [tuple(sid) for sid in beam.tolist()] == [distinct[leaf] for leaf in ranking[:3]]
    np.testing.assert_allclose(scores, [expected[leaf] for leaf in ranking[:3]], atol=1e-5)
    first_codes = truth.scores[0]
    greedy, _ = truth.beam(width=1)
    assert greedy[0, 0] == int(np.argmax(first_codes))

    left = truth.among(np.array([[2, 2], [0, 1], [2, 2]]))
    assert [prefixes.tolist() for prefixes in left.prefixes] == [[[0], [2]], [[0, 1], [2, 2]]]
    assert left.scores[0].tolist() == first_codes[[0, 2]].tolist()
    assert left.scores[1].tolist() == truth.scores[1][[1, 3]].tolist()
