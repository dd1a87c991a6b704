"""The parts of selection at fixed shapes one by one, at the sizes and strides where kernels go wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from item_catalog.sid import SidLayout
from item_catalog.trie import PrefixTrie
from recall_service.engine.constraint import LevelArrays, TrieConstraint
from recall_service.engine.fixed_selection import CHUNK, FixedSelection, select_fixed, select_top_fixed
from recall_service.engine.kernels.candidate_chunks import candidate_chunks, candidate_chunks_reference
from recall_service.engine.kernels.ranks import child_ranks, child_ranks_reference, token_ranks, token_ranks_reference
from recall_service.engine.kernels.row_statistics import row_normaliser, row_statistics, row_statistics_reference
from recall_service.engine.kernels.selection import TRITON_SELECTION
from recall_service.engine.request import ScoreSpace
from recall_service.engine.selection import select_top_reference
from tests.engine.kernels.cases_selection import INF, random_question, two_level_trie
from tests.engine.kernels.host_waits import makes_the_host_wait

FAR = 2**30  # elements from one row to the next: it fits 32 bits, and twice as many do not


def random_logits(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return (3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def far_rows(logits: Tensor, device: torch.device) -> Tensor:
    """The same three rows, gigabytes apart. Memory between them is never touched."""
    far = torch.empty(2 * FAR + logits.shape[1], dtype=logits.dtype, device=device).as_strided(logits.shape, (FAR, 1))
    return far.copy_(logits)


def level_arrays(device: torch.device, seed: int = 0) -> LevelArrays:
    """The second level of a catalogue of 7 x 90 codes, which are their own token ids."""
    trie = two_level_trie(seed, (7, 90), 300)
    return TrieConstraint(trie, [np.arange(7), np.arange(90)], device).level_arrays(1)


def check_row_statistics(num_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
    """Rows of -inf alone, and with a lone token, too; a view of something wider whose other columns are NaN."""
    wide = torch.full((4, num_tokens + 9), torch.nan, dtype=dtype)
    wide[:, 3 : num_tokens + 3] = random_logits(4, num_tokens, seed=num_tokens, dtype=dtype)
    logits = wide[:, 3 : num_tokens + 3]
    logits[1] = -INF
    logits[2] = -INF
    logits[2, num_tokens // 2] = 60.0
    expected = row_statistics_reference(logits)
    on_device = wide.to(device)[:, 3 : num_tokens + 3]
    statistics = row_statistics(on_device)
    torch.testing.assert_close(statistics.normaliser.cpu(), expected.normaliser, atol=1e-5, rtol=0)
    assert torch.equal(statistics.maxima.cpu(), expected.maxima)
    assert torch.equal(row_normaliser(on_device), statistics.normaliser)
    assert bool((statistics.normaliser >= statistics.maxima.amax(1)).all()), "a log-probability above 0"


def check_many_equal_terms(device: torch.device) -> None:
    """Added one after another in fp32, these would lose 4e-4."""
    logits = torch.full((1, 65_536), -0.3)
    logits[0, 0] = 0.0
    exact = logits.double().logsumexp(1).float()
    torch.testing.assert_close(row_normaliser(logits.to(device)).cpu(), exact, atol=4e-6, rtol=0)
    arrays = _one_node(65_536, device)
    nodes = torch.zeros(1, dtype=torch.int64, device=device)
    in_catalogue = candidate_chunks(logits.to(device), nodes, arrays, 0)
    torch.testing.assert_close(in_catalogue.normaliser.cpu(), exact, atol=4e-6, rtol=0)
    expected = row_statistics_reference(logits).maxima
    assert torch.equal(in_catalogue.maxima.cpu(), expected)


def _one_node(num_children: int, device: torch.device) -> LevelArrays:
    trie = PrefixTrie.from_sorted_sids(SidLayout((num_children,)), np.arange(num_children)[:, None])
    return TrieConstraint(trie, [np.arange(num_children)], device).level_arrays(0)


def check_branch(num_children: int, device: torch.device) -> None:
    logits, nodes = random_logits(2, num_children, seed=num_children), torch.zeros(2, dtype=torch.int64)
    logits[1, num_children // 2 :] = -INF
    expected = candidate_chunks_reference(logits, nodes, _one_node(num_children, torch.device("cpu")), 0)
    found = candidate_chunks(logits.to(device), nodes.to(device), _one_node(num_children, device), 0)
    assert found.maxima.shape == (2, -(-num_children // CHUNK))
    assert torch.equal(found.maxima.cpu(), expected.maxima)
    torch.testing.assert_close(found.normaliser.cpu(), expected.normaliser, atol=1e-5, rtol=0)


def check_wide_offsets(device: torch.device) -> None:
    """Offsets of a catalogue of 2**31 edges and more are int64."""
    arrays, logits = level_arrays(device), random_logits(3, 90).to(device)
    nodes = torch.tensor([6, 0, 3], device=device)
    found = candidate_chunks(logits, nodes, arrays, 0)
    wide = candidate_chunks(logits, nodes, arrays._replace(offsets=arrays.offsets.long()), 0)
    assert arrays.offsets.dtype == torch.int32
    assert all(torch.equal(part, own) for part, own in zip(found, wide, strict=True))


def check_ranks(dtype: torch.dtype, device: torch.device) -> None:
    """Ties share the better rank; a value that is no row's own is ranked as well."""
    logits = random_logits(3, 5000, dtype=dtype).round()
    rows, values = torch.tensor([2, 0, 0, 1]), torch.tensor([0.0, 2.0, INF, -INF])
    found = token_ranks(logits.to(device), rows.to(device), values.to(device))
    assert found.tolist() == token_ranks_reference(logits, rows, values).tolist()
    arrays, cpu = level_arrays(device), level_arrays(torch.device("cpu"))
    nodes = torch.tensor([5, 1, 6])
    of_level = logits[:, 7:97]
    found = child_ranks(of_level.to(device), nodes.to(device), arrays, 0, rows.to(device), values.to(device))
    assert found.tolist() == child_ranks_reference(of_level, nodes, cpu, 0, rows, values).tolist()


def check_ranks_of_many_children(device: torch.device) -> None:
    """More than one block of children: all but the last ten thousand are below the value."""
    logits = torch.arange(20_000.0, device=device)[None]
    first, value = torch.zeros(1, dtype=torch.int64, device=device), torch.tensor([9_999.0], device=device)
    ranks = child_ranks(logits, first, _one_node(20_000, device), 0, first, value)
    assert (ranks.tolist(), ranks.dtype) == ([10_001], torch.int32)


def check_far_rows(device: torch.device) -> None:
    """P22: the offset of the third row does not fit 32 bits."""
    logits, arrays = random_logits(3, 90, dtype=torch.bfloat16).to(device), level_arrays(device)
    far, nodes = far_rows(logits, device), torch.tensor([2, 4, 1], device=device)
    rows, values = torch.tensor([2, 0], device=device), torch.tensor([0.0, 1.0], device=device)
    ours = [
        *row_statistics(far),
        *candidate_chunks(far, nodes, arrays, 0),
        token_ranks(far, rows, values),
        child_ranks(far, nodes, arrays, 0, rows, values),
    ]
    near = [
        *row_statistics(logits),
        *candidate_chunks(logits, nodes, arrays, 0),
        token_ranks(logits, rows, values),
        child_ranks(logits, nodes, arrays, 0, rows, values),
    ]
    assert all(torch.equal(part, own) for part, own in zip(near, ours, strict=True))
    scores, chunks = torch.zeros(3, device=device), torch.tensor([[1], [0], [1]], device=device)
    expand = partial(TRITON_SELECTION.expand_chunks, chunks=chunks, first_token=0)
    for trie in (arrays, None):
        apart, beside = (expand(part, scores, nodes, near[0], trie=trie) for part in (far, logits))
        assert all(torch.equal(part, own) for part, own in zip(beside, apart, strict=True))


def check_top(num_scores: int, count: int, device: torch.device) -> None:
    """Few values and many ties, 0.0 and -0.0 among them; ties at rare values; and no ties at all."""
    generator = torch.Generator().manual_seed(num_scores)
    values = torch.tensor([0.0, -0.0, 1.5, -1.5, -2.0, -INF])
    tied = values[torch.randint(0, len(values), (2, num_scores), generator=generator)]
    untied = torch.randn(2, num_scores, generator=generator)
    for scores in (tied, untied.round(), untied, torch.full_like(untied, -INF)):
        chosen = select_top_fixed(scores.to(device), count)
        expected = [select_top_reference(row, count)[0].tolist() for row in scores]
        assert chosen.tolist() == expected


class Launches(TorchDispatchMode):
    """What torch is asked to do: operation and shapes. Refuses what waits for a value, or has its shape from one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not makes_the_host_wait(func, args), f"{func} waits for the device"
        result = func(*args, **(kwargs or {}))
        self.asked.append((str(func), [tuple(part.shape) for part in (*args, result) if isinstance(part, Tensor)]))
        return result


def selections(device: torch.device, *, in_catalogue: bool, space: ScoreSpace) -> "list[partial[FixedSelection]]":
    """Two selections of one shape. Of the second, rows are dead, logits equal or NaN."""
    sound, poor = (random_question(3, requests=2, rows=3, space=space) for _ in range(2))
    sound.logits.nan_to_num_(nan=1.0)
    sound.scores.clamp_(min=-9.0)
    poor.logits[0, :2] = 0.0
    constraint = sound.constraint(device) if in_catalogue else None
    return [
        partial(
            select_fixed,
            question.logits.flatten(0, 1).to(device),
            question.scores.flatten().to(device),
            question.nodes.flatten().to(device),
            num_requests=2,
            level=1,
            width=3,
            constraint=constraint,
            score_space=space,
            with_ranks=True,
            kernels=TRITON_SELECTION,
        )
        for question in (sound, poor)
    ]


def check_launches(in_catalogue: bool, space: ScoreSpace, device: torch.device) -> None:
    """The same operations at the same shapes, whatever the values; none that the host would have to wait for."""
    asked = []
    for select in selections(device, in_catalogue=in_catalogue, space=space):
        select()  # kernels are compiled by then
        with Launches() as launches, no_waiting(device):
            select()
        asked.append(launches.asked)
    assert asked[0] == asked[1]


def check_replay(device: torch.device) -> None:
    """Captured with one request's values and replayed with another's, the answer is the other's."""
    recorded, other = selections(device, in_catalogue=True, space=ScoreSpace.CODEBOOK)
    expected = other()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        picked = recorded()
    for part, own in zip(recorded.args, other.args, strict=True):
        part.copy_(own)
    graph.replay()
    assert all(torch.equal(part, own) for part, own in zip(expected, picked, strict=True))


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """CUDA itself reports a synchronisation as an error."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


CASES: dict[str, Callable[[torch.device], None]] = {
    **{
        f"row statistics, {num_tokens} tokens": partial(check_row_statistics, num_tokens, torch.float32)
        for num_tokens in (1, 31, 32, 33, 4095, 4096, 4097, 9000)
    },
    "row statistics, bf16": partial(check_row_statistics, 700, torch.bfloat16),
    "many equal terms": check_many_equal_terms,
    **{f"branch {num_children}": partial(check_branch, num_children) for num_children in (1, 31, 32, 33, 513, 5_000)},
    "offsets of 64 bits": check_wide_offsets,
    "rows far apart": check_far_rows,
    "ranks": partial(check_ranks, torch.float32),
    "ranks, bf16": partial(check_ranks, torch.bfloat16),
    "ranks, many children": check_ranks_of_many_children,
    **{
        f"top {count} of {num_scores}": partial(check_top, num_scores, count)
        for num_scores, count in (
            (1, 1),
            (300, 300),
            (128, 1),
            (129, 1),
            (700, 1),
            (1024, 7),
            (9000, 7),
            (9001, 2),
            (1000, 129),
            (60_000, 33),
        )
    },
    "launches, free": partial(check_launches, False, ScoreSpace.VOCABULARY),
    **{f"launches, {space.value}": partial(check_launches, True, space) for space in ScoreSpace},
    **({"captured": check_replay} if torch.cuda.is_available() else {}),
}
