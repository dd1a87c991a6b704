"""One level of search on injected logits: what is a candidate, how it is scored, which ones survive."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.request import ScoreSpace
from recall_service.engine.selection import Selection, select_beams
from recall_service.errors import ModelOutputError
from tests.engine.driving import SPACES
from tests.oracles.tries import Catalogue, trie_of

VOCAB = 20
INF = float("inf")


def select(logits: Tensor, catalogue: Catalogue | None, **changes: Any) -> Selection:
    """Select from rows at score 0 and the first nodes of a level, unless told otherwise."""
    settings: dict[str, Any] = {"level": 0, "width": 4, "score_space": ScoreSpace.VOCABULARY, "with_ranks": True}
    rows = {"scores": torch.zeros(len(logits)), "nodes": torch.arange(len(logits))}
    constraint = None if catalogue is None else catalogue.constraint
    return select_beams(logits, **(rows | settings | {"constraint": constraint} | changes))


def flat(*codes: int, size: int = 10) -> Catalogue:
    """One level of codes, each code its own token id."""
    return Catalogue({(code,) for code in codes}, [np.arange(size)])


def two_levels(seed: int = 0) -> Catalogue:
    """A catalogue whose rows at level 1 have children of different numbers."""
    return Catalogue.random(np.random.default_rng(seed), (6, 8), 25, VOCAB)


def random_rows(catalogue: Catalogue, seed: int = 0) -> dict[str, Tensor]:
    """Every node of depth 1 as a row, at a random score."""
    generator = torch.Generator().manual_seed(seed)
    num_rows = catalogue.num_prefixes(1)
    return {
        "logits": 3 * torch.randn(num_rows, VOCAB, generator=generator),
        "scores": -3 * torch.rand(num_rows, generator=generator).sort().values,
        "nodes": torch.randperm(num_rows, generator=generator),
    }


def test_illegal_tokens_are_masked_before_the_top_is_taken() -> None:
    """Lesson 3: logits 9..0 and {6, 7, 8} legal; the top 2 of all tokens hold no legal one."""
    picked = select(torch.arange(9.0, -1.0, -1.0)[None], flat(6, 7, 8), width=2)
    assert picked.tokens.tolist() == [6, 7]


def test_a_beam_is_judged_by_the_whole_vocabulary_not_by_its_own_top() -> None:
    """Lesson 4: flat A at 0 loses to peaked B at -0.6, whose best token costs nothing."""
    logits = torch.zeros(2, 10)
    logits[1, 3] = 12.0
    picked = select(logits, None, scores=torch.tensor([0.0, -0.6]), width=1)
    assert (picked.parents.tolist(), picked.tokens.tolist()) == ([1], [3])


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
def test_a_single_legal_child_is_a_single_beam(space: ScoreSpace) -> None:
    """Lesson 5: W = 2 and one legal child. Nothing else fills up."""
    picked = select(torch.zeros(1, 10), flat(4), width=2, score_space=space)
    assert picked.tokens.tolist() == [4]
    assert float(picked.best_pruned) == -INF
    expected = 0.0 if space is ScoreSpace.CATALOG else -np.log(10)
    assert picked.log_probs.tolist() == [pytest.approx(expected)]


@settings(derandomize=True, max_examples=60)
@given(seed=st.integers(0, 10**6), width=st.integers(1, 30), space=st.sampled_from(SPACES))
def test_selecting_per_row_first_and_then_among_those_is_the_same(seed: int, width: int, space: ScoreSpace) -> None:
    """P6, with many ties: logits are whole numbers."""
    catalogue = two_levels(seed)
    rows = random_rows(catalogue, seed)
    rows["logits"], rows["scores"] = rows["logits"].round(), torch.zeros_like(rows["scores"])
    whole = select(**rows, catalogue=catalogue, level=1, width=width, score_space=space)
    survivors = []
    for row in range(len(rows["logits"])):
        own = {name: part[row : row + 1] for name, part in rows.items()}
        picked = select(**own, catalogue=catalogue, level=1, width=width, score_space=space)
        log_probs = picked.log_probs.tolist()
        survivors += [(-log_prob, row, int(node)) for log_prob, node in zip(log_probs, picked.nodes, strict=True)]
    survivors.sort()  # by score, then parent, then node: the nodes of one parent are in the order of their codes
    assert list(zip(whole.parents.tolist(), whole.nodes.tolist(), strict=True)) == [
        (row, node) for _, row, node in survivors[:width]
    ]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
def test_adding_a_constant_to_a_rows_logits_changes_nothing(space: ScoreSpace) -> None:
    """P7."""
    catalogue = two_levels()
    rows = random_rows(catalogue)
    before = select(**rows, catalogue=catalogue, level=1, width=12, score_space=space)
    rows["logits"] = rows["logits"] + torch.linspace(-8, 8, len(rows["logits"]))[:, None]
    after = select(**rows, catalogue=catalogue, level=1, width=12, score_space=space)
    assert before.nodes.tolist() == after.nodes.tolist()
    torch.testing.assert_close(before.log_probs, after.log_probs, atol=3e-6, rtol=0)


def test_an_illegal_tokens_logit_matters_exactly_to_the_spaces_that_hold_it() -> None:
    """P7: token 7 is of the codebook but of no item, token 15 of neither."""
    catalogue, logits = flat(1, 2, 3, size=10), torch.zeros(1, VOCAB)
    changed = {}
    for token in (7, 15):
        lowered = logits.clone()
        lowered[0, token] = -5.0
        for space in SPACES:
            pair = [select(rows, catalogue, score_space=space).log_probs.tolist() for rows in (logits, lowered)]
            changed[token, space] = pair[0] != pair[1]
    assert changed == {
        (7, ScoreSpace.VOCABULARY): True,
        (7, ScoreSpace.CODEBOOK): True,
        (7, ScoreSpace.CATALOG): False,
        (15, ScoreSpace.VOCABULARY): True,
        (15, ScoreSpace.CODEBOOK): False,
        (15, ScoreSpace.CATALOG): False,
    }


def test_ranks_count_greater_logits_in_the_score_space_and_ties_share_the_better_one() -> None:
    catalogue, logits = flat(1, 2, 3, size=10), torch.zeros(1, VOCAB)
    logits[0, [15, 7, 1, 2, 3]] = torch.tensor([9.0, 8.0, 7.0, 7.0, 6.0])
    ranks = {space: select(logits, catalogue, score_space=space).ranks.tolist() for space in SPACES}
    assert ranks == {
        ScoreSpace.VOCABULARY: [3, 3, 5],
        ScoreSpace.CODEBOOK: [2, 2, 4],
        ScoreSpace.CATALOG: [1, 1, 3],
    }


@pytest.mark.parametrize("width", [1, 400, 10_000, 20_000])
def test_one_root_child_with_ten_thousand_grandchildren(width: int) -> None:
    """P12."""
    trie = trie_of({(0, code) for code in range(10_000)}, (1, 10_000))
    constraint = TrieConstraint(trie, [np.array([10_000]), np.arange(10_000)])
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(3))
    logits = torch.zeros(1, 10_001)
    logits[0, order] = torch.arange(10_000, 0, -1) / 1024  # far enough apart to stay apart as log-probabilities
    picked = select(logits, None, constraint=constraint, level=1, width=width, with_ranks=False)
    assert picked.tokens.tolist() == order[:width].tolist()


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
def test_a_token_of_probability_zero_is_no_candidate(space: ScoreSpace) -> None:
    """P13: -inf on some legal tokens."""
    logits = torch.zeros(1, 10)
    logits[0, [2, 5]] = -INF
    picked = select(logits, flat(2, 3, 5, 6), score_space=space)
    assert picked.tokens.tolist() == [3, 6]
    assert float(picked.best_pruned) == -INF


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.value)
def test_a_row_that_can_go_nowhere_dies_and_the_others_live(space: ScoreSpace) -> None:
    """P12, P13, lesson 5: an all-masked row never becomes an unconstrained one."""
    catalogue = Catalogue({(0, 1), (0, 2), (1, 1), (1, 3)}, [np.arange(2), np.arange(4)])
    logits = torch.full((2, 6), -INF)
    logits[1] = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    picked = select(logits, catalogue, level=1, score_space=space)
    assert (picked.parents.tolist(), picked.tokens.tolist()) == ([1, 1], [3, 1])
    logits[1] = -INF
    assert len(select(logits, catalogue, level=1, score_space=space).tokens) == 0


@pytest.mark.parametrize("space", [*SPACES, None], ids=[*(space.value for space in SPACES), "free"])
@pytest.mark.parametrize("value", [torch.nan, INF], ids=["nan", "+inf"])
def test_logits_that_are_no_numbers_are_an_error(space: ScoreSpace | None, value: float) -> None:
    """P13."""
    logits = torch.zeros(2, 10)
    logits[1, 3] = value
    catalogue = Catalogue({(0, 3), (1, 3)}, [np.arange(2), np.arange(4)])
    with pytest.raises(ModelOutputError, match="NaN or \\+inf"):
        select(logits, catalogue if space else None, level=1, score_space=space or ScoreSpace.VOCABULARY)
