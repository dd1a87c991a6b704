"""The decoder's operations as kernels under the interpreter: each alone, and whole decoders built with them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from recall_service.engine.attention import BeamAttention, BeamSpan, PromptAttention, PromptSpan
from recall_service.engine.kernels.operations import TritonOperations
from recall_service.engine.kv_cache import BeamSlots, ContextPages
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.loader import load_decoder
from tests.engine.kernels.cases_operations import CASES
from tests.make_checkpoint import FAMILY_CHANGES, make_model, write_checkpoint

PROMPTS = ([5, 9, 2, 44, 17], [63, 0, 1])
ROWS = (3, 5)  # beams of each prompt
STEPS = 2


@pytest.mark.parametrize("name", CASES)
def test_operations_equal_their_references(name: str) -> None:
    CASES[name](torch.device("cpu"))


@pytest.fixture(params=["qwen3-untied", "qwen2", "llama-biases"])
def decoder(request: pytest.FixtureRequest, tmp_path: Path) -> Decoder:
    return load_decoder(write_checkpoint(make_model(**FAMILY_CHANGES[request.param]), tmp_path))


def test_decoders_built_with_kernels_give_the_same_logits(decoder: Decoder) -> None:
    """Prompts of which only the last tokens are wanted, then two steps of their beams."""
    with_kernels = Decoder(decoder.config, decoder._weights, operations=TritonOperations())
    with torch.inference_mode():
        pairs = list(zip(forward_all(with_kernels), forward_all(decoder), strict=True))
    assert [len(actual) for actual, _ in pairs] == [len(PROMPTS), *[sum(ROWS)] * STEPS]
    for actual, expected in pairs:
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def forward_all(decoder: Decoder) -> Sequence[Tensor]:
    """Logits of the prompts' last tokens, and of every row at every step, in a batch of both prompts."""
    where = (decoder.dtype, decoder.device)
    pages, slots = ContextPages(decoder.config, 4, 4, *where), BeamSlots(decoder.config, sum(ROWS) * STEPS, *where)
    places = [pages.places(pages.allocate(len(prompt)), len(prompt)) for prompt in PROMPTS]
    tokens = torch.tensor([token for prompt in PROMPTS for token in prompt])
    positions = torch.cat([torch.arange(len(prompt)) for prompt in PROMPTS])
    first, end = len(PROMPTS[0]), len(tokens)
    spans = [PromptSpan(slice(0, first), places[0]), PromptSpan(slice(first, end), places[1])]
    last_tokens = torch.tensor([first - 1, end - 1])
    hidden = decoder.hidden(tokens, positions, PromptAttention(pages.storage, spans), last_tokens)
    logits = [decoder.logits(hidden)]

    generator = torch.Generator().manual_seed(1)
    ancestors = torch.empty(sum(ROWS), 0, dtype=torch.int64)
    for step in range(STEPS):
        ancestors = torch.cat([ancestors, slots.allocate(sum(ROWS))[:, None]], dim=1)
        beams = [BeamSpan(slice(0, ROWS[0]), places[0], ancestors[: ROWS[0]])]
        beams += [BeamSpan(slice(ROWS[0], sum(ROWS)), places[1], ancestors[ROWS[0] :])]
        attention = BeamAttention(pages.storage, slots.storage, beams)
        depths = torch.tensor([len(prompt) + step for prompt in PROMPTS]).repeat_interleave(torch.tensor(ROWS))
        tokens = torch.randint(decoder.config.vocab_size, (sum(ROWS),), generator=generator)
        logits.append(decoder.logits(decoder.hidden(tokens, depths, attention)))
    return logits
