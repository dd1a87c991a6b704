"""A GPU too small for the settings is refused at start, with the sizes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from recall_service.engine.kv_cache import page_bytes
from recall_service.engine.memory import memory_states, refuse_too_many_weights, refuse_what_does_not_fit
from recall_service.engine.models.checkpoint import Checkpoint
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import CheckpointError, SettingsError
from tests.oracles.path_decoder import path_config


def test_weights_that_do_not_fit_are_refused(tiny_checkpoint: Path, tiny_model: PreTrainedModel) -> None:
    num_values = Checkpoint(tiny_checkpoint).num_values
    assert num_values == sum(parameter.numel() for parameter in tiny_model.parameters())
    refuse_too_many_weights(tiny_checkpoint, 4 << 30, 4 << 30)
    with pytest.raises(CheckpointError, match=r"take 4\.00 GiB, the GPU has 3\.00 GiB free; load them as bfloat16"):
        refuse_too_many_weights(tiny_checkpoint, 4 << 30, 3 << 30)


LIMITS = EngineLimits(max_rows=100, max_steps=3, context_pages=10, page_len=32)
CONFIG = replace(path_config(1000), num_layers=4, num_kv_heads=8, head_dim=128)


def test_names_every_size_and_the_remedy() -> None:
    with pytest.raises(SettingsError, match=r"0\.25 GiB free.*pages 4\.\d+, slots .*lower max_rows"):
        refuse_what_does_not_fit(CONFIG, LIMITS, 10_000, torch.bfloat16, 1 << 28)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_takes_what_fits_and_refuses_one_page_more(dtype: torch.dtype) -> None:
    page = page_bytes(CONFIG, LIMITS.page_len, dtype)

    def fits(num_free: int, num_pages: int) -> bool:
        try:
            refuse_what_does_not_fit(CONFIG, LIMITS, num_pages, dtype, num_free)
        except SettingsError:
            return False
        return True

    least = next(free for free in range(0, 1 << 33, page) if fits(free, 10))
    assert fits(least, 10)
    assert not fits(least, 11)
    assert fits(least + page, 11)
    assert least > 10 * page + LIMITS.num_slots * page // LIMITS.page_len


@pytest.mark.parametrize("reserved", [5, 9], ids=["beside others", "freed between two readings"])
def test_the_states_of_memory_add_up(monkeypatch: pytest.MonkeyPatch, reserved: int) -> None:
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (12, 20))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 3)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: reserved)
    states = memory_states(device)
    assert states == {"used": 3, "kept": reserved - 3, "other": max(0, 8 - reserved), "free": 12}
