"""A very short training writes a checkpoint that loads, and that has learned something."""

import math
import time
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from recall_service.demo.assortment import LAYOUT
from recall_service.demo.batches import BOS_ID, PAD_ID, padded_prompts
from recall_service.demo.shop import Shop
from recall_service.demo.tokens import sid_token_ids, vocabulary
from recall_service.demo.training import train_checkpoint


@pytest.fixture(scope="module")
def checkpoint(small_shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo") / "model"
    train_checkpoint(small_shop, directory, max_seconds=2.0, progress=False)
    return directory


def test_the_checkpoint_has_the_files_a_bundle_needs(checkpoint: Path) -> None:
    assert {path.name for path in checkpoint.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_the_tokenizer_loads_and_agrees_with_the_model(checkpoint: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert tokenizer.encode("<bos><a_1><b_2><c_255>") == [1, 3 + 1, 3 + 256 + 2, 3 + 512 + 255]
    assert len(tokenizer) == model.config.vocab_size == len(vocabulary(LAYOUT)) == 771
    assert model.config.model_type == "qwen3"
    assert model.generation_config.bos_token_id == BOS_ID


def test_held_out_histories_are_likelier_than_chance(checkpoint: Path, small_shop: Shop) -> None:
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    tokens = sid_token_ids(LAYOUT, small_shop.assortment.sids)
    histories = [tokens[small_shop.held_out.of_user(user)].ravel() for user in range(small_shop.held_out.num_users)]
    batch = torch.from_numpy(padded_prompts(histories))
    with torch.inference_mode():
        logits = model(input_ids=batch[:, :-1]).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=PAD_ID)
    assert loss.item() < math.log(771)


def test_progress_is_shown_on_stderr_only_and_time_is_kept(
    small_shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    train_checkpoint(small_shop, tmp_path / "model", max_seconds=0.5)
    elapsed_seconds = time.monotonic() - started
    captured = capsys.readouterr()
    assert "loss" in captured.err
    assert "Writing model shards" not in captured.err
    assert captured.out == ""
    assert elapsed_seconds < 10  # half a second, one step and the writing, on a machine that may be very busy


def test_torch_keeps_its_threads(small_shop: Shop, tmp_path: Path) -> None:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train_checkpoint(small_shop, tmp_path / "model", max_seconds=0.1, progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(num_threads)


@pytest.mark.parametrize("max_seconds", [0.0, -1.0, math.nan])
def test_no_time_to_train_is_refused(small_shop: Shop, tmp_path: Path, max_seconds: float) -> None:
    with pytest.raises(ValueError, match=r"max_seconds: .*; give a positive number"):
        train_checkpoint(small_shop, tmp_path, max_seconds=max_seconds)
