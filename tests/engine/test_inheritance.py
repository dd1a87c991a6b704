"""Rows that read their ancestors through a slot table, against the same paths run from the start."""

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from recall_service.engine.attention import BeamAttention, BeamSpan, PromptAttention, PromptSpan
from recall_service.engine.beams import BeamRows
from recall_service.engine.kv_cache import BeamSlots, ContextPages
from recall_service.engine.models.decoder import Decoder
from tests.oracles.teacher_forcing import next_token_logits

PROMPT = [5, 9, 2, 44, 17]
ROWS = 6
PATTERNS = {
    "sorted": lambda rng: np.sort(rng.integers(0, ROWS, ROWS)),
    "same": lambda rng: np.arange(ROWS),
    "reversed": lambda rng: np.arange(ROWS)[::-1],
    "all-from-one": lambda rng: np.full(ROWS, rng.integers(ROWS)),
    "derangement": lambda rng: np.roll(np.arange(ROWS), 1 + rng.integers(ROWS - 1)),
    "swap-and-repeat": lambda rng: np.array([2, 0, 0, 1, 1, 0]),
    "random": lambda rng: rng.integers(0, ROWS, ROWS),
    "fewer": lambda rng: rng.integers(0, ROWS, ROWS),  # then one row less at every step
}


def descend(rows: BeamRows, parents: np.ndarray, tokens: np.ndarray) -> BeamRows:
    """Children with the bookkeeping that this test has no use for left at zero."""
    nothing = torch.zeros(len(parents))
    where = torch.from_numpy(np.ascontiguousarray(parents))
    return rows.descend(where, torch.from_numpy(tokens), nothing.long(), nothing, nothing.int())


@pytest.mark.parametrize("pattern", PATTERNS)
def test_slot_tables_equal_a_recompute_of_every_path_at_every_step(
    tiny_model: PreTrainedModel, tiny_decoder: Decoder, pattern: str
) -> None:
    """P17, lessons 7 and 8: after each step, for any parents, with just as many slots as the worst case needs."""
    rng, steps = np.random.default_rng(len(pattern)), 5
    where = (tiny_decoder.dtype, tiny_decoder.device)
    pages = ContextPages(tiny_decoder.config, 3, 4, *where)
    slots = BeamSlots(tiny_decoder.config, ROWS * steps, *where)
    for storage in (pages.storage, slots.storage):
        storage.keys.fill_(torch.nan)
        storage.values.fill_(torch.nan)
    pages.allocate(4)  # so that the prompt does not begin at place 0
    places = pages.places(pages.allocate(len(PROMPT)), len(PROMPT))
    span = PromptSpan(slice(0, len(PROMPT)), places)
    tiny_decoder.hidden(torch.tensor(PROMPT), torch.arange(len(PROMPT)), PromptAttention(pages.storage, [span]))

    rows = descend(BeamRows.root(where[1]), np.zeros(ROWS, int), rng.integers(0, 64, ROWS))
    for depth in range(1, steps + 1):
        rows = rows.with_own_slots(slots.allocate(len(rows)))
        attention = BeamAttention(pages.storage, slots.storage, [BeamSpan(slice(0, len(rows)), places, rows.slots)])
        positions = torch.full((len(rows),), len(PROMPT) + depth - 1)
        logits = tiny_decoder.logits(tiny_decoder.hidden(rows.tokens[:, -1], positions, attention))
        expected = next_token_logits(tiny_model, PROMPT)([tuple(path) for path in rows.tokens.tolist()])
        torch.testing.assert_close(logits, Tensor(expected), atol=2e-5, rtol=1e-5)
        if depth < steps:
            parents = PATTERNS[pattern](rng)[: len(rows) - (pattern == "fewer")] % len(rows)
            rows = descend(rows, parents, rng.integers(0, 64, len(parents)))
            slots.keep_only(rows.slots)
    assert slots.num_used == len(set(rows.slots.flatten().tolist()))
