"""Selection at fixed shapes against the CPU's: bit by bit with the references, the same choice with the kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from item_catalog.sid import SidLayout
from item_catalog.trie import PrefixTrie
from recall_service.engine.constraint import NO_TOKEN, TrieConstraint
from recall_service.engine.fixed_selection import FixedSelection, SelectionKernels, select_fixed
from recall_service.engine.kernels.selection import REFERENCE_SELECTION, TRITON_SELECTION
from recall_service.engine.request import ScoreSpace
from recall_service.engine.selection import select_beams
from tests.oracles.tries import nodes_leading_to

INF = float("inf")
VOCAB = 150
WIDTHS = (1, 7, 8, 9, 31, 32, 33, 127, 128, 129, 255, 256, 257, 400)


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """Rows of some requests at one level: logits [requests, rows, tokens], scores and nodes [requests, rows]."""

    logits: Tensor
    scores: Tensor
    nodes: Tensor
    width: int
    trie: PrefixTrie | None = None
    level_tokens: Sequence[NDArray[np.int64]] = ()
    level: int = 1
    space: ScoreSpace = ScoreSpace.VOCABULARY
    with_ranks: bool = False
    first_token: int = 0
    live_leaves: NDArray[np.bool_] | None = None

    def constraint(self, device: torch.device | str) -> TrieConstraint | None:
        """The trie on a device, of which a filter keeps the live leaves; None in a free search."""
        if self.trie is None:
            return None
        constraint = TrieConstraint(self.trie, self.level_tokens, device)
        if self.live_leaves is None:
            return constraint
        sids = list(map(tuple, self.trie.leaf_sids(np.arange(self.trie.num_leaves)).tolist()))
        live = [sid for sid, is_live in zip(sids, self.live_leaves, strict=True) if is_live]
        return constraint.keeping(nodes_leading_to(live, sids))

    def of_requests(self, requests: slice | list[int]) -> "Question":
        """The same of some requests alone."""
        parts = {name: getattr(self, name)[requests] for name in ("logits", "scores", "nodes")}
        return replace(self, **parts)

    def sliced(self) -> "Question":
        """The same with the logits of the level's codebook alone, as a view of all of them."""
        constraint = self.constraint("cpu")
        assert constraint is not None
        first, end = constraint.token_range(self.level)
        return replace(self, logits=self.logits[:, :, first:end], first_token=first)


def answer(question: Question, kernels: SelectionKernels, device: torch.device | str) -> FixedSelection:
    """Of select_fixed, brought to the CPU."""
    picked = select_fixed(
        question.logits.to(device).flatten(0, 1),
        question.scores.to(device).flatten(),
        question.nodes.to(device).flatten(),
        num_requests=len(question.logits),
        level=question.level,
        width=question.width,
        constraint=question.constraint(device),
        score_space=question.space,
        with_ranks=question.with_ranks,
        first_token=question.first_token,
        kernels=kernels,
    )
    return FixedSelection(*(part.cpu() for part in picked))


def expected_answer(question: Question) -> FixedSelection:
    """The CPU's selection from the live rows of each request, filled up to the width."""
    requests = []
    for logits, scores, nodes in zip(question.logits, question.scores, question.nodes, strict=True):
        live = int((scores > -INF).sum())
        assert bool((scores[:live] > -INF).all()), "rows that exist come first"
        picked = select_beams(
            logits[:live] if live else torch.zeros_like(logits[:1]),
            scores[:live] if live else torch.full((1,), -INF),
            nodes[:live] if live else nodes[:1],
            level=question.level,
            width=question.width,
            constraint=question.constraint("cpu"),
            score_space=question.space,
            with_ranks=question.with_ranks,
            first_token=question.first_token,
        )
        absent = question.width - len(picked.parents)
        filled = [torch.nn.functional.pad(part, (0, absent)) for part in picked[:5]]
        parents, tokens, children, log_probs, ranks = filled
        total = scores[parents] + log_probs
        total[question.width - absent :] = -INF
        requests.append(
            (parents, tokens, children, log_probs, total, ranks, picked.best_pruned, torch.tensor(data=False))
        )
    return FixedSelection(*(torch.stack(part) for part in zip(*requests, strict=True)))


def check(question: Question, device: torch.device) -> None:
    """References: equal in every bit. Kernels: the same choice, values to 1e-5, ties as stated."""
    expected = check_references(question)
    picked = answer(question, TRITON_SELECTION, device)
    for name, part, own in zip(FixedSelection._fields, expected, picked, strict=True):
        torch.testing.assert_close(own, part, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}")
    check_order(picked)


def check_references(question: Question) -> FixedSelection:
    """References equal the CPU's selection in every bit; what that is."""
    expected = expected_answer(question)
    picked = answer(question, REFERENCE_SELECTION, "cpu")
    for name, part, own in zip(FixedSelection._fields, expected, picked, strict=True):
        assert torch.equal(own, part), f"{name} is {own}, expected {part}"
    return expected


def check_order(picked: FixedSelection) -> None:
    """Score descending, then parent, then code: the children of a parent are numbered in the order of their codes."""
    for parents, nodes, scores in zip(picked.parents, picked.nodes, picked.scores, strict=True):
        keys = [(-float(s), int(p), int(n)) for s, p, n in zip(scores, parents, nodes, strict=True) if s > -INF]
        assert keys == sorted(set(keys)), "out of order, or the same path twice"


def two_level_trie(seed: int, sizes: tuple[int, int], num_sids: int) -> PrefixTrie:
    """A random trie whose nodes at depth 1 have children of different numbers."""
    rng = np.random.default_rng(seed)
    sids = np.stack([rng.integers(0, size, num_sids) for size in sizes], axis=1)
    return PrefixTrie.from_sorted_sids(SidLayout(sizes), np.unique(sids, axis=0))


def one_level_trie(codes: Sequence[int], size: int) -> PrefixTrie:
    """The root and its children."""
    return PrefixTrie.from_sorted_sids(SidLayout((size,)), np.array(codes)[:, None])


def random_question(seed: int, *, requests: int = 3, rows: int = 5, width: int = 12, **changes: Any) -> Question:
    """Rows at level 1 of a relabelled catalogue. Some requests have fewer rows; what they lack is poisoned with NaN."""
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    trie = two_level_trie(seed, (7, 90), 300)
    logits = 3 * torch.randn(requests, rows, VOCAB, generator=generator)
    scores = -3 * torch.rand(requests, rows, generator=generator).sort(dim=1).values
    nodes = torch.from_numpy(rng.integers(0, trie.num_nodes(1), (requests, rows)))
    for request, absent in enumerate([0, 2, rows][:requests]):
        scores[request, rows - absent :] = -INF
        nodes[request, rows - absent :] = 0
        logits[request, rows - absent :] = torch.nan
    question = Question(
        logits=logits,
        scores=scores,
        nodes=nodes,
        width=width,
        trie=trie,
        level_tokens=[rng.permutation(VOCAB)[:size].astype(np.int64) for size in trie.layout.codebook_sizes],
    )
    return replace(question, **changes)


def free(question: Question) -> Question:
    """The same rows, without a catalogue."""
    return replace(question, trie=None, level_tokens=(), nodes=torch.zeros_like(question.nodes))


def check_filtered(space: ScoreSpace, share: float, device: torch.device) -> None:
    """Leaves that a filter drops are no candidates, and a node without live ones leads nowhere."""
    question = random_question(8, with_ranks=True, space=space, rows=6, width=20)
    assert question.trie is not None
    live_leaves = np.random.default_rng(8).random(question.trie.num_leaves) < share
    check(replace(question, live_leaves=live_leaves), device)
    roots = {name: getattr(question, name)[:, :1].contiguous() for name in ("logits", "scores")}
    above = replace(question, level=0, nodes=torch.zeros_like(question.nodes[:, :1]), **roots)
    check(replace(above, live_leaves=live_leaves), device)


def check_random(space: ScoreSpace | None, dtype: torch.dtype, device: torch.device) -> None:
    question = random_question(1, with_ranks=True, space=space or ScoreSpace.VOCABULARY)
    question = replace(question, logits=question.logits.to(dtype))
    check(free(question) if space is None else question, device)


def check_sliced_head(space: ScoreSpace, tokens: NDArray[np.int64], device: torch.device) -> None:
    """A codebook that is a range of tokens, in order or not, or has holes; logits are of that range alone."""
    question = random_question(2, space=space, with_ranks=True)
    check(replace(question, level_tokens=[np.arange(7), tokens]).sliced(), device)


def check_width(width: int, device: torch.device) -> None:
    """About 190 candidates a request: fewer than the wider beams have room for."""
    check(random_question(width, requests=2, width=width), device)


def check_free_width(vocab_size: int, width: int, device: torch.device) -> None:
    question = free(random_question(width, width=width))
    check(replace(question, logits=question.logits.repeat(1, 1, 7)[:, :, :vocab_size]), device)


def check_root(device: torch.device) -> None:
    """One row a request, and one child each for most of the codes of a narrow codebook."""
    generator = torch.Generator().manual_seed(4)
    check(
        Question(
            logits=torch.randn(3, 1, VOCAB, generator=generator),
            scores=torch.tensor([[0.0], [-INF], [0.0]]),
            nodes=torch.zeros(3, 1, dtype=torch.int64),
            width=33,
            trie=one_level_trie([0, 1, 3, 7, 40], 41),
            level_tokens=[np.arange(41) + 100],
            level=0,
        ),
        device,
    )


def check_chain(rows: int, device: torch.device) -> None:
    """Rows with one child each, and room for 400. So many rows are slow in the interpreter: there, references alone."""
    sids = np.stack([np.arange(rows), np.arange(rows) % 9], axis=1)
    question = Question(
        logits=torch.randn(1, rows, 9, generator=torch.Generator().manual_seed(5)),
        scores=torch.linspace(0, -9, rows)[None],
        nodes=torch.arange(rows).flip(0)[None],
        width=400,
        trie=PrefixTrie.from_sorted_sids(SidLayout((rows, 9)), sids),
        level_tokens=[np.arange(rows), np.arange(9)],
        space=ScoreSpace.CODEBOOK,
    )
    expected = check_references(question)
    assert int((expected.scores > -INF).sum()) == rows
    if rows < 100 or device.type == "cuda":
        check(question, device)


def check_many_grandchildren(width: int, device: torch.device) -> None:
    """P12: one child of the root has 10^4 children, another has one."""
    sids = np.array([*([0, code] for code in range(10_000)), [1, 5]])
    logits = torch.empty(1, 2, 10_000)
    logits[:] = torch.randperm(10_000, generator=torch.Generator().manual_seed(6)) / 1024  # far enough apart
    question = Question(
        logits=logits,
        scores=torch.tensor([[0.0, -20.0]]),
        nodes=torch.tensor([[0, 1]]),
        width=width,
        trie=PrefixTrie.from_sorted_sids(SidLayout((2, 10_000)), sids),
        level_tokens=[np.arange(2), np.arange(10_000)],
        space=ScoreSpace.CATALOG,
    )
    check(question, device)


def check_equal_logits(width: int, device: torch.device) -> None:
    """P10: the lexicographically first paths, and one that scores the same is pruned."""
    question = random_question(7, requests=1, width=width)
    question = replace(question, logits=torch.zeros_like(question.logits), scores=torch.zeros_like(question.scores))
    check(question, device)
    constraint = question.constraint(device)
    assert constraint is not None
    children = constraint.children(1, question.nodes.flatten().to(device))
    picked = answer(question, TRITON_SELECTION, device)
    assert torch.equal(picked.parents[0], children.parents[:width].cpu())
    assert torch.equal(picked.nodes[0], children.nodes[:width].cpu())
    assert picked.best_pruned[0] == picked.scores[0, 0]


def check_duplicates(device: torch.device) -> None:
    """Two beams that are the same in everything: each path comes twice, the earlier parent's first."""
    question = random_question(8, requests=1, width=30)
    for part in (question.logits, question.scores, question.nodes):
        part[:, 3] = part[:, 1]
    check(question, device)
    picked = answer(question, TRITON_SELECTION, device)
    pairs = [(int(parent), int(node)) for parent, node in zip(picked.parents[0], picked.nodes[0], strict=True)]
    twins = [node for parent, node in pairs if parent == 1]
    assert twins
    assert all((1, node) == pairs[pairs.index((3, node)) - 1] for parent, node in pairs if parent == 3)


def check_impossible(space: ScoreSpace | None, device: torch.device) -> None:
    """P13: tokens of probability zero are no candidates, and a row of nothing else goes nowhere."""
    question = random_question(9, width=200, space=space or ScoreSpace.VOCABULARY)
    question.logits[:, :, ::2] = -INF
    question.logits[0, 1] = question.logits[1] = -INF
    question = free(question) if space is None else question
    check(question, device)
    picked = answer(question, TRITON_SELECTION, device)
    assert (picked.scores > -INF).any(1).tolist() == [True, False, False]


def check_faulty(value: float, space: ScoreSpace | None, device: torch.device) -> None:
    """P13: one logit of a request is no number; the others get what they get without it, bit by bit."""
    question = random_question(10, requests=2, space=space or ScoreSpace.VOCABULARY)
    question = question.of_requests([0, 1, 0])
    question = free(question) if space is None else question
    constraint = question.constraint("cpu")
    token = 5 if constraint is None else int(constraint.children(1, question.nodes[0, :1]).tokens[0])
    faulty = replace(question, logits=question.logits.clone())
    faulty.logits[2, 0, token] = value
    for kernels, place in ((TRITON_SELECTION, device), (REFERENCE_SELECTION, torch.device("cpu"))):
        picked, sound = (answer(each, kernels, place) for each in (faulty, question))
        assert picked.invalid.tolist() == [False, False, True]
        assert sound.invalid.tolist() == [False, False, False]
        for name, part, own in zip(FixedSelection._fields, sound, picked, strict=True):
            assert torch.equal(part[:2], own[:2]), name
            assert part.shape == own.shape


def check_fault_that_does_not_count(device: torch.device) -> None:
    """NaN for a token outside the score space: of the codebook but of no child, and of neither."""
    tokens = np.arange(90, dtype=np.int64) + 20
    for space, token in ((ScoreSpace.CODEBOOK, 3), (ScoreSpace.CATALOG, 3), (ScoreSpace.CATALOG, 109)):
        question = random_question(11, requests=2, space=space, level_tokens=[np.arange(7), tokens])
        trie = two_level_trie(11, (7, 89), 300)  # code 89 of 90 is no child's
        question = replace(question, trie=PrefixTrie(SidLayout((7, 90)), trie.offsets, trie.codes))
        question.logits[:, :, token] = torch.nan
        check(question, device)


def check_alone_and_together(device: torch.device) -> None:
    """P14: a request's answer is the same in any company, in every bit."""
    question = random_question(12, with_ranks=True)
    together = answer(question, TRITON_SELECTION, device)
    for request in range(3):
        alone = answer(question.of_requests(slice(request, request + 1)), TRITON_SELECTION, device)
        for name, part, own in zip(FixedSelection._fields, together, alone, strict=True):
            assert torch.equal(part[request], own[0]), name


def check_wide_codes(device: torch.device) -> None:
    """Codes beyond fifteen bits, in a codebook of which most codes have no token."""
    tokens = np.full(40_000, NO_TOKEN)
    codes = [32_767, 32_768, 39_999]
    tokens[codes] = [7, 2, 4]
    check(
        Question(
            logits=torch.randn(1, 1, 9, generator=torch.Generator().manual_seed(13)),
            scores=torch.zeros(1, 1),
            nodes=torch.zeros(1, 1, dtype=torch.int64),
            width=2,
            trie=one_level_trie(codes, 40_000),
            level_tokens=[tokens],
            level=0,
            space=ScoreSpace.CODEBOOK,
            with_ranks=True,
        ),
        device,
    )


def _spaces() -> dict[str, ScoreSpace | None]:
    return {"free": None} | {space.value: space for space in ScoreSpace}


IN_ORDER = np.arange(90, dtype=np.int64) + 20
CODEBOOKS = {"in order": IN_ORDER, "out of order": IN_ORDER[::-1].copy(), "with holes": IN_ORDER + (IN_ORDER > 60) * 9}

CASES: dict[str, Callable[[torch.device], None]] = {
    **{f"random rows, {name}": partial(check_random, space, torch.float32) for name, space in _spaces().items()},
    **{
        f"filter keeps {share:.0%}, {space.value}": partial(check_filtered, space, share)
        for space in ScoreSpace
        for share in (0.0, 0.02, 0.5)
    },
    "random rows, bf16": partial(check_random, ScoreSpace.VOCABULARY, torch.bfloat16),
    "random rows, free, bf16": partial(check_random, None, torch.bfloat16),
    **{
        f"sliced head, codebook {name}": partial(check_sliced_head, ScoreSpace.CODEBOOK, tokens)
        for name, tokens in CODEBOOKS.items()
    },
    "sliced head, CATALOG": partial(check_sliced_head, ScoreSpace.CATALOG, IN_ORDER),
    **{f"width {width}": partial(check_width, width) for width in WIDTHS},
    **{
        f"free, {vocab_size} tokens, width {width}": partial(check_free_width, vocab_size, width)
        for vocab_size, width in ((1, 4), (31, 7), (32, 8), (33, 9), (400, 257), (1000, 1), (1000, 64))
    },
    "root": check_root,
    **{f"chains, {rows} rows": partial(check_chain, rows) for rows in (33, 400)},
    **{f"10^4 grandchildren, width {width}": partial(check_many_grandchildren, width) for width in (1, 400, 1024)},
    **{f"all equal, width {width}": partial(check_equal_logits, width) for width in (1, 33, 100)},
    "duplicates in two beams": check_duplicates,
    **{f"impossible tokens, {name}": partial(check_impossible, space) for name, space in _spaces().items()},
    **{f"NaN, {name}": partial(check_faulty, torch.nan, space) for name, space in _spaces().items()},
    **{f"+inf, {name}": partial(check_faulty, INF, _spaces()[name]) for name in ("free", "CATALOG")},
    "NaN that does not count": check_fault_that_does_not_count,
    "alone and together": check_alone_and_together,
    "codes beyond fifteen bits": check_wide_codes,
}
