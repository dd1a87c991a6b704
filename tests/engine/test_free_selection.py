"""The top of rows x vocabulary, found through chunks, against one stable sort of all of it."""

import pytest
import torch

from recall_service.engine.request import ScoreSpace
from recall_service.engine.selection import Selection, select_beams, select_top_reference


def select(logits: torch.Tensor, scores: torch.Tensor, width: int) -> Selection:
    nodes = torch.zeros(len(scores), dtype=torch.int64)
    return select_beams(
        logits,
        scores,
        nodes,
        level=0,
        width=width,
        constraint=None,
        score_space=ScoreSpace.VOCABULARY,
        with_ranks=False,
    )


def assert_equals_a_full_sort(logits: torch.Tensor, scores: torch.Tensor, width: int) -> None:
    """Survivors, order, and the best score left out, which the certificate rests on."""
    picked = select(logits, scores, width)
    log_probs = logits.float() - torch.logsumexp(logits.float(), dim=-1, keepdim=True)
    order, best_pruned = select_top_reference((scores[:, None] + log_probs).flatten(), width)
    assert picked.parents.tolist() == (order // logits.shape[1]).tolist()
    assert picked.tokens.tolist() == (order % logits.shape[1]).tolist()
    torch.testing.assert_close(picked.log_probs, log_probs.flatten()[order], atol=1e-5, rtol=0)
    torch.testing.assert_close(picked.best_pruned, best_pruned, atol=1e-5, rtol=0)


@pytest.mark.parametrize("vocab_size", [1, 63, 64, 65, 400, 1000])
@pytest.mark.parametrize("num_rows", [1, 3, 17])
@pytest.mark.parametrize("width", [1, 2, 7, 64, 400])
def test_equals_a_full_sort(vocab_size: int, num_rows: int, width: int) -> None:
    generator = torch.Generator().manual_seed(vocab_size * 100 + num_rows)
    logits = 3 * torch.randn(num_rows, vocab_size, generator=generator)
    scores = -torch.rand(num_rows, generator=generator)
    assert_equals_a_full_sort(logits, scores, min(width, num_rows * vocab_size))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_next_best_may_be_alone_in_its_chunk(width: int) -> None:
    """One great logit a chunk: the best one left out is in a chunk that holds no survivor."""
    logits = torch.full((1, 5 * 64), -20.0)
    logits[0, [10, 70, 140, 200, 300]] = torch.tensor([1.0, 5.0, 3.0, 4.0, 2.0])
    assert_equals_a_full_sort(logits, torch.zeros(1), width)


def test_equal_logits_give_the_first_tokens_of_the_first_row() -> None:
    picked = select(torch.zeros(3, 200), torch.zeros(3), 70)
    assert picked.parents.tolist() == [0] * 70
    assert picked.tokens.tolist() == list(range(70))
