"""The floor counts every product once, and each way to run one gives the same numbers."""

from pathlib import Path

import pytest
import torch

from benchmarks.floor import CAUSAL_ATTENTION, CONTEXT_ATTENTION, HEAD, Floor, FloorWeights, products_of
from recall_service.engine.models.config import read_config

LAYERS, PROMPT, ROWS = 2, 16, (6, 6, 4)


def row_layers(stage: str, matrix: str) -> int:
    """Rows times layers that go through one kind of matrix."""
    products = products_of(LAYERS, PROMPT, ROWS)
    return sum(
        times * product.rows * product.layers
        for product, times in products.items()
        if (product.stage, product.matrix) == (stage, matrix)
    )


@pytest.mark.parametrize("matrix", ["qkv", "out", "gate_up", "down", CONTEXT_ATTENTION])
def test_every_row_goes_through_every_layer_once(matrix: str) -> None:
    assert row_layers("decode", matrix) == LAYERS * sum(ROWS)


def test_the_head_sees_the_rows_that_need_logits() -> None:
    assert row_layers("prefill", HEAD) == 1
    assert row_layers("decode", HEAD) == sum(ROWS)


def test_the_last_layer_of_a_prompt_runs_for_its_last_token() -> None:
    assert row_layers("prefill", "qkv") == LAYERS * PROMPT
    assert row_layers("prefill", "down") == (LAYERS - 1) * PROMPT + 1
    assert row_layers("prefill", CAUSAL_ATTENTION) == (LAYERS - 1) * PROMPT
    assert row_layers("prefill", CONTEXT_ATTENTION) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_all_ways_give_the_same_products(dtype: torch.dtype, tiny_checkpoint: Path) -> None:
    floor = Floor(FloorWeights(read_config(tiny_checkpoint), dtype), PROMPT, ROWS)
    for product, ways in floor._ways.items():
        if product.matrix in (CAUSAL_ATTENTION, CONTEXT_ATTENTION):
            continue  # fused ways put a softmax between the two products
        plain, *others = (multiply(product.layers - 1).float() for multiply in ways.values())
        for other in others:
            torch.testing.assert_close(other, plain, rtol=2e-2, atol=0.2 if dtype == torch.bfloat16 else 1e-4)
    first = next(product for product in floor._ways if product.matrix == CONTEXT_ATTENTION)
    ways = floor._ways[first]
    torch.testing.assert_close(ways["as_stored"](0), ways["transposed"](0))


def test_a_run_leaves_one_sample_of_every_way_and_a_warm_up_none(tiny_checkpoint: Path) -> None:
    floor = Floor(FloorWeights(read_config(tiny_checkpoint), torch.float32), PROMPT, ROWS)
    floor.run(warm_up=True)
    assert not floor._samples
    floor.run()
    floor.run()
    assert {len(samples) for samples in floor._samples.values()} == {2}
    assert all(entry.seconds > 0 for entry in floor.timed())
