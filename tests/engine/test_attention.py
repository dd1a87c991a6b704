"""Beam attention against a plain softmax in fp64."""

import pytest
import torch
from torch import Tensor

from recall_service.engine.attention import attend_beams
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
    attended = attend_beams(queries, *context, *beams)
    torch.testing.assert_close(attended.double(), attend_reference(queries, context, beams), atol=2e-6, rtol=2e-6)


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
    storage.write(1, torch.tensor([4, 1]), *kv)
    keys, values = storage.read(1, torch.tensor([[1], [4]]))
    torch.testing.assert_close(keys[:, 0], kv[0].flip(0), atol=0, rtol=0)
    torch.testing.assert_close(values[:, 0], kv[1].flip(0), atol=0, rtol=0)
    assert int(storage.keys.isfinite().sum()) == 2 * 2 * 12
