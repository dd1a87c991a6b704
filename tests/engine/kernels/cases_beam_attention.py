"""What beam attention must hold on any device: functions of a torch.device, for pytest and for machines without it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recall_service.engine.attention import attend_beams
from recall_service.engine.kernels.beam_attention import beam_attention, beam_attention_reference, count_splits

ANYTHING = 2**31 - 1  # in a page table, past a context's own pages
TOLERANCE = {torch.float32: {"atol": 1e-5, "rtol": 1e-5}, torch.bfloat16: {"atol": 1e-2, "rtol": 1e-2}}


class Arguments(NamedTuple):
    """Of `beam_attention`, in its order."""

    queries: Tensor
    context_keys: Tensor
    context_values: Tensor
    page_table: Tensor
    page_len: int
    context_lens: Tensor
    slot_keys: Tensor
    slot_values: Tensor
    slots: Tensor

    def widened(self) -> "Arguments":
        """The same numbers in fp32."""
        return Arguments(*(part.float() if _is_real(part) else part for part in self))

    @property
    def num_splits(self) -> int:
        """Into how many parts a context is cut where the rows of a request are one tile; into no more otherwise."""
        num_requests, max_pages = self.page_table.shape
        return count_splits(num_requests * self.context_keys.shape[1], max_pages * self.page_len)


def _is_real(part: Tensor | int) -> bool:
    return isinstance(part, Tensor) and part.is_floating_point()


def make_arguments(
    device: torch.device,
    *,
    width: int = 3,
    context_lens: Sequence[int] = (5,),
    max_context: int | None = None,
    depth: int = 2,
    heads: int = 2,
    kv_heads: int = 1,
    dim: int = 16,
    page_len: int = 4,
    dtype: torch.dtype = torch.float32,
) -> Arguments:
    """Random requests of `width` rows. Pages lie shuffled, rows share ancestors; whatever nobody owns is NaN."""
    generator = torch.Generator().manual_seed(width * 1000 + sum(context_lens) * 10 + depth)
    num_rows = len(context_lens) * width
    max_pages = -(-(max_context or max(context_lens)) // page_len)
    page_table = torch.full((len(context_lens), max_pages), ANYTHING, dtype=torch.int32)
    num_pages = [-(-length // page_len) for length in context_lens]
    numbers = torch.randperm(sum(num_pages) + 3, generator=generator).to(torch.int32)
    context = torch.full((2, len(numbers) * page_len, kv_heads, dim), torch.nan)
    for row, own, length in zip(page_table, numbers.split([*num_pages, 3]), context_lens, strict=False):
        row[: len(own)] = own
        places = (own[:, None].long() * page_len + torch.arange(page_len)).flatten()[:length]
        context[:, places] = torch.randn(2, length, kv_heads, dim, generator=generator)
    num_slots = 2 * num_rows + 5
    slots = torch.randperm(num_slots, generator=generator)[
        torch.randint(num_rows + 1, (num_rows, depth), generator=generator)
    ]
    pool = torch.full((2, num_slots, kv_heads, dim), torch.nan)
    named = slots.unique()
    pool[:, named] = torch.randn(2, len(named), kv_heads, dim, generator=generator)
    queries = 2 * torch.randn(num_rows, heads, dim, generator=generator)
    queries, context, pool = (part.to(device, dtype) for part in (queries, context, pool))
    lens = torch.tensor(context_lens, dtype=torch.int32, device=device)
    return Arguments(queries, *context, page_table.to(device), page_len, lens, *pool, slots.to(device))


def equals_reference(device: torch.device, *, split: bool = False, **shape: Any) -> None:
    arguments = make_arguments(device, **shape)
    assert (arguments.num_splits > 1) == split, "the case is not of the kind that it says"
    attended = beam_attention(*arguments)
    assert attended.dtype == arguments.queries.dtype
    expected = beam_attention_reference(*arguments.widened())
    assert bool(expected.isfinite().all())
    torch.testing.assert_close(attended.float(), expected, **TOLERANCE[attended.dtype])


def equals_attention_of_the_cpu(device: torch.device) -> None:
    """With contexts as `attend_beams` wants them, gathered and by head."""
    arguments = make_arguments(device, width=9, context_lens=(13,), depth=3, heads=6, kv_heads=2)
    position = torch.arange(13, device=device)
    places = arguments.page_table[0, position // 4].long() * 4 + position % 4
    context = (part[places].transpose(0, 1) for part in (arguments.context_keys, arguments.context_values))
    beams = (part[arguments.slots].permute(2, 0, 1, 3) for part in (arguments.slot_keys, arguments.slot_values))
    expected = attend_beams(arguments.queries, *context, *beams)
    torch.testing.assert_close(beam_attention(*arguments), expected, atol=1e-5, rtol=1e-5)


def nothing_to_attend_to_is_zeros(device: torch.device, *, max_context: int) -> None:
    arguments = make_arguments(device, context_lens=(0, 3), max_context=max_context, depth=0)
    attended = beam_attention(*arguments)
    assert attended[:3].count_nonzero().item() == 0
    torch.testing.assert_close(attended[3:], beam_attention_reference(*arguments)[3:], atol=1e-5, rtol=1e-5)


def equal_scores_give_the_mean(device: torch.device, *, max_context: int) -> None:
    """Every position counts once, whatever tile or split it is in."""
    arguments = make_arguments(device, context_lens=(131,), max_context=max_context, depth=2)
    arguments.context_keys.fill_(0.5)
    arguments.slot_keys.fill_(0.5)
    position = torch.arange(131, device=device)
    places = arguments.page_table[0, position // 4].long() * 4 + position % 4
    own = arguments.slot_values[arguments.slots]  # [rows, depth, kv_heads, dim]
    mean = (arguments.context_values[places].sum(0) + own.sum(1)) / 133
    torch.testing.assert_close(beam_attention(*arguments), mean.expand(3, 2, 16), atol=1e-5, rtol=1e-5)


def huge_scores_stay_finite(device: torch.device, *, max_context: int) -> None:
    """Lesson 14: the part that counts is in one split, and the others are as good as empty."""
    arguments = make_arguments(device, context_lens=(131,), max_context=max_context, depth=1)
    arguments.queries.fill_(1e4)
    arguments.context_keys.fill_(-1e4)
    arguments.slot_keys.fill_(1e4)
    own = arguments.slot_values[arguments.slots[:, 0]]
    torch.testing.assert_close(beam_attention(*arguments), own.expand(3, 2, 16), atol=0, rtol=0)


def nan_stays_with_whose_it_is(device: torch.device, *, max_context: int) -> None:
    """NaN in one request's context fails its rows; NaN in a slot fails the rows that descend from it, no others."""
    arguments = make_arguments(device, width=5, context_lens=(9, 6, 70), max_context=max_context)
    expected = beam_attention(*arguments)
    arguments.context_keys[arguments.page_table[1, 0].long() * 4] = torch.nan
    arguments.slot_values[arguments.slots[12, 0]] = torch.nan
    heirs = (arguments.slots == arguments.slots[12, 0]).any(1)
    failed = heirs | (torch.arange(15, device=device) // 5 == 1)
    attended = beam_attention(*arguments)
    assert bool(attended[failed].isnan().all()), "what is NaN must be seen to be"
    assert not bool(failed.all())
    torch.testing.assert_close(attended[~failed], expected[~failed], atol=0, rtol=0)


def alone_as_in_a_batch(device: torch.device) -> None:
    """P14, up to the rounding of another split: padding requests and longer neighbours change nothing."""
    arguments = make_arguments(device, width=7, context_lens=(0, 300, 33), max_context=512)
    attended = beam_attention(*arguments)
    for request in (1, 2):
        rows = slice(request * 7, request * 7 + 7)
        alone = arguments._replace(
            queries=arguments.queries[rows],
            page_table=arguments.page_table[request : request + 1, :75],
            context_lens=arguments.context_lens[request : request + 1],
            slots=arguments.slots[rows],
        )
        torch.testing.assert_close(beam_attention(*alone), attended[rows], atol=1e-5, rtol=1e-5)


def views_of_wider_rows(device: torch.device) -> None:
    """Queries lie beside keys and values, storages have layers, and slots have room for steps to come."""
    arguments = make_arguments(device, width=5, context_lens=(9, 6), heads=4, kv_heads=2)
    beside = torch.full((10, 8, 16), torch.nan, device=device)
    beside[:, :4] = arguments.queries
    to_come = torch.full((10, 6), ANYTHING, device=device)
    to_come[:, :2] = arguments.slots
    wider_table = torch.full((2, 9), ANYTHING, dtype=torch.int32, device=device)
    wider_table[:, : arguments.page_table.shape[1]] = arguments.page_table
    views = arguments._replace(
        queries=beside[:, :4], page_table=wider_table[:, : arguments.page_table.shape[1]], slots=to_come[:, :2]
    )
    torch.testing.assert_close(beam_attention(*views), beam_attention(*arguments), atol=0, rtol=0)


def offsets_beyond_32_bits(device: torch.device) -> None:
    """P22: places and slots 2**20 elements apart, the last at 2**31. What lies between is reserved, never touched."""
    apart, last = 2**20, 2**11
    memory = torch.empty(apart * last + 64, dtype=torch.bfloat16, device=device)
    generator = torch.Generator().manual_seed(0)
    parts = torch.randn(4, 1, 16, generator=generator).to(device, torch.bfloat16)
    stored = [memory.as_strided((last + 1, 1, 16), (apart, 16, 1), 16 * index) for index in range(4)]
    for view, part in zip(stored, parts, strict=True):
        view[last] = part
    queries = torch.randn(1, 1, 16, generator=generator).to(device, torch.bfloat16)
    page = torch.full((1, 1), last, dtype=torch.int32, device=device)
    one, slots = torch.ones(1, dtype=torch.int32, device=device), torch.full((1, 1), last, device=device)
    attended = beam_attention(queries, stored[0], stored[1], page, 1, one, stored[2], stored[3], slots)
    near = [part[None] for part in parts]
    expected = beam_attention(queries, near[0], near[1], page * 0, 1, one, near[2], near[3], slots * 0)
    assert bool(expected.isfinite().all())
    torch.testing.assert_close(attended, expected, atol=0, rtol=0)


def replayed_on_other_contexts(device: torch.device) -> None:
    """Captured once, a launch follows what its arguments hold: no length, page or slot was decided by the host."""
    arguments = make_arguments(device, width=33, context_lens=(5, 600), depth=2)
    other = make_arguments(device, width=33, context_lens=(600, 5), depth=2)
    beam_attention(*arguments)  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attended = beam_attention(*arguments)
    for part, replacement in zip(arguments, other, strict=True):
        if isinstance(part, Tensor) and isinstance(replacement, Tensor):
            part.copy_(replacement)
    graph.replay()
    torch.testing.assert_close(attended, beam_attention_reference(*other), atol=1e-5, rtol=1e-5)


WIDTHS = (1, 7, 8, 9, 31, 32, 33, 127, 128, 129, 255, 256, 257, 400)
SPLIT = {"split": True, "max_context": 1024}

CASES: dict[str, Callable[[torch.device], None]] = {
    **{f"width_{width}": partial(equals_reference, width=width) for width in WIDTHS},
    **{
        f"width_{width}_in_half_precision": partial(equals_reference, width=width, heads=4, dtype=torch.bfloat16)
        for width in (1, 9, 31, 32, 33)
    },
    **{
        f"pages_of_{page_len}": partial(equals_reference, page_len=page_len, context_lens=lens, depth=1)
        for page_len, lens in ((1, (1, 2, 33)), (4, (0, 1, 3, 4, 5, 8, 9)), (7, (6, 7, 8)), (32, (31, 32, 33, 64, 65)))
    },
    **{f"depth_{depth}": partial(equals_reference, depth=depth, width=5) for depth in (0, 1, 2, 3, 7)},
    "no_context": partial(equals_reference, context_lens=(0, 0), max_context=8),
    "no_context_no_pages": partial(equals_reference, context_lens=(0,)),
    **{
        f"{group}_heads_per_kv_head": partial(equals_reference, heads=2 * group, kv_heads=2, width=9)
        for group in (1, 2, 4, 7, 8)
    },
    **{
        f"head_size_{dim}_in_{name}": partial(
            equals_reference, dim=dim, dtype=dtype, heads=4, kv_heads=2, width=9, context_lens=(70, 33), page_len=32
        )
        for dim in (64, 128)
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
    },
    **{
        f"split_contexts_{'_'.join(map(str, lens))}_at_depth_{depth}": partial(
            equals_reference, context_lens=lens, depth=depth, **SPLIT
        )
        for lens, depth in (
            ((1000,), 2),
            ((1024, 0, 1, 300), 1),
            ((31, 32, 33, 64), 0),
            ((127, 128, 129, 257), 3),
        )
    },
    "split_contexts_of_several_tiles": partial(equals_reference, context_lens=(300, 0), width=33, depth=1, **SPLIT),
    "split_contexts_in_half_precision": partial(
        equals_reference, context_lens=(600, 3), width=9, dtype=torch.bfloat16, **SPLIT
    ),
    **{
        f"{check.__name__}{'_when_split' if max_context > 256 else ''}": partial(check, max_context=max_context)
        for check in (
            nothing_to_attend_to_is_zeros,
            equal_scores_give_the_mean,
            huge_scores_stay_finite,
            nan_stays_with_whose_it_is,
        )
        for max_context in (132, 1024)
    },
    **{
        check.__name__: check
        for check in (equals_attention_of_the_cpu, alone_as_in_a_batch, views_of_wider_rows, offsets_beyond_32_bits)
    },
}
if torch.cuda.is_available():
    CASES["replayed_on_other_contexts"] = replayed_on_other_contexts
