"""Beam attention against a plain softmax in fp64."""

import pytest
import torch
from torch import Tensor

from recall_service.engine import attention
from recall_service.engine.attention import attend_beams, attend_causally, attend_causally_fused
from recall_service.engine.kv_cache import KvStorage
from recall_service.engine.models.decoder import Decoder


def attend_reference(queries: Tensor, context: tuple[Tensor, Tensor], beams: tuple[Tensor, Tensor]) -> Tensor:
    """Row by row, head by head, over the keys the row may see."""
    num_rows, num_heads, dim = queries.shape
    group = num_heads // context[0].shape[1]
    attended = torch.empty(queries.shape, dtype=torch.float64)
    for row in range(num_rows):
        for head in range(num_heads):
            keys, values = (
                torch.cat([part[:, head // group], own[row, :, head // group]]).double()
                for part, own in zip(context, beams, strict=True)
            )
            weights = (keys @ queries[row, head].double() / dim**0.5).softmax(0)
            attended[row, head] = weights @ values
    return attended


def random_kv(generator: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
@pytest.mark.parametrize("num_rows", [1, 2, 33])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (8, 1)], ids=["every", "grouped", "shared"])
def test_equals_a_plain_softmax_over_context_and_ancestors(
    depth: int, num_rows: int, heads: int, kv_heads: int
) -> None:
    generator = torch.Generator().manual_seed(depth * 1000 + num_rows)
    context_len, dim = 1 + 5 * (depth % 3), 6
    queries = 3 * torch.randn(num_rows, heads, dim, generator=generator)
    context = random_kv(generator, context_len, kv_heads, dim)
    beams = random_kv(generator, num_rows, depth, kv_heads, dim)
    by_head = (*(part.transpose(0, 1) for part in context), *(part.permute(2, 0, 1, 3) for part in beams))
    attended = attend_beams(queries, *by_head)
    torch.testing.assert_close(attended.double(), attend_reference(queries, context, beams), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("num_new", [1, 2, 63, 64, 65, 129])
@pytest.mark.parametrize("prefix_len", [0, 1, 70])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 2)], ids=["every", "grouped"])
def test_prompts_attend_to_all_that_is_not_after_them(num_new: int, prefix_len: int, heads: int, kv_heads: int) -> None:
    """P15: around the edges of a block of queries, with and without a prefix that is there already."""
    generator = torch.Generator().manual_seed(num_new * 100 + prefix_len)
    queries = 3 * torch.randn(num_new, heads, 6, generator=generator)
    keys, values = random_kv(generator, prefix_len + num_new, kv_heads, 6)
    attended = attend_causally(queries, keys, values)
    fused = attend_causally_fused(queries, keys, values)
    torch.testing.assert_close(attended, fused, atol=3e-6, rtol=3e-6)
    for position in range(num_new):
        seen = slice(prefix_len + position + 1)
        nothing = torch.empty(1, 0, kv_heads, 6)
        expected = attend_reference(queries[position : position + 1], (keys[seen], values[seen]), (nothing, nothing))
        torch.testing.assert_close(attended[position : position + 1].double(), expected, atol=3e-6, rtol=3e-6)


@pytest.mark.parametrize("tile_bytes", [1, 1 << 12, 1 << 30])
def test_how_many_heads_go_at_once_changes_nothing(tile_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)
    queries = torch.randn(9, 8, 6, generator=generator)
    context, beams = random_kv(generator, 4, 30, 6), random_kv(generator, 4, 9, 2, 6)
    expected = attend_beams(queries, *context, *beams)
    monkeypatch.setattr(attention, "_TILE_BYTES", tile_bytes)
    torch.testing.assert_close(attend_beams(queries, *context, *beams), expected, atol=1e-6, rtol=1e-6)


def test_a_single_key_on_each_side_of_huge_scores_stays_finite() -> None:
    """Lesson 14: two parts are merged by one softmax, so neither can be empty or overflow on its own."""
    queries = torch.full((1, 1, 2), 1e4)
    context, beams = (
        (torch.full((1, 1, 2), -1e4), torch.ones(1, 1, 2)),
        (torch.ones(1, 1, 1, 2), torch.zeros(1, 1, 1, 2)),
    )
    assert attend_beams(queries, *context, *beams).tolist() == [[[0.0, 0.0]]]


def test_storage_reads_what_was_written_and_nothing_else(tiny_decoder: Decoder) -> None:
    storage = KvStorage(tiny_decoder.config, 6, torch.float32, torch.device("cpu"))
    storage.keys.fill_(torch.nan)
    storage.values.fill_(torch.nan)
    kv = random_kv(torch.Generator().manual_seed(0), 2, 2, 12)
    storage.target(1, torch.tensor([4, 1])).store(*kv)
    keys, values = storage.read(1, torch.tensor([[1], [4]]))
    torch.testing.assert_close(keys[:, 0], kv[0].flip(0), atol=0, rtol=0)
    torch.testing.assert_close(values[:, 0], kv[1].flip(0), atol=0, rtol=0)
    assert int(storage.keys.isfinite().sum()) == 2 * 2 * 12
    by_head = storage.read_by_head(1, torch.tensor([[1], [4]]))
    torch.testing.assert_close(by_head[0], keys.permute(2, 0, 1, 3), atol=0, rtol=0)
    torch.testing.assert_close(by_head[1], values.permute(2, 0, 1, 3), atol=0, rtol=0)
