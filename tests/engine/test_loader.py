"""Checkpoints as they come: one file or shards, fp32 or bf16, with sampling defaults that mean nothing here."""

import json
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from recall_service.engine.engine import BeamEngine
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.models.linear import Linear
from recall_service.engine.models.loader import load_decoder
from recall_service.engine.request import BeamResult
from tests.engine.driving import SMALL, ask
from tests.make_checkpoint import make_model, write_checkpoint
from tests.oracles.compare import PER_TOKEN
from tests.oracles.teacher_forcing import next_token_logits

PROMPT = [8, 2, 51, 33]


def answer(decoder: Decoder) -> BeamResult:
    return BeamEngine(decoder, SMALL).search([ask(None, PROMPT, beam_width=20, num_steps=3)])[0]


def assert_same_model(left: Decoder, right: Decoder) -> None:
    """The same weights to the bit. Logits may still differ in the last one, for matrices lie elsewhere in memory."""
    assert left.config == right.config
    for ours, theirs in zip(tensors_of(left), tensors_of(right), strict=True):
        assert torch.equal(ours, theirs)


def tensors_of(decoder: Decoder) -> list[torch.Tensor]:
    weights = decoder._weights
    parts = [getattr(layer, field.name) for layer in weights.layers for field in fields(layer)]
    unpacked = [(part.weight, part.bias) if isinstance(part, Linear) else (part,) for part in parts]
    return [
        weights.embedding,
        weights.final_norm,
        weights.head,
        *(tensor for tensors in unpacked for tensor in tensors if tensor is not None),
    ]


def test_shards_load_equal_to_one_file(tiny_model: PreTrainedModel, tiny_decoder: Decoder, tmp_path: Path) -> None:
    write_checkpoint(tiny_model, tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert_same_model(load_decoder(tmp_path), tiny_decoder)


def test_sampling_defaults_of_the_checkpoint_change_nothing(
    tiny_checkpoint: Path, tiny_decoder: Decoder, tmp_path: Path
) -> None:
    """Lesson 12."""
    shutil.copytree(tiny_checkpoint, tmp_path, dirs_exist_ok=True)
    poison = {"do_sample": True, "top_k": 20, "top_p": 0.8, "temperature": 0.6, "repetition_penalty": 1.5}
    (tmp_path / "generation_config.json").write_text(json.dumps(poison), encoding="utf-8")
    poisoned, plain = answer(load_decoder(tmp_path)), answer(tiny_decoder)
    assert poisoned.tokens.tolist() == plain.tokens.tolist()
    np.testing.assert_allclose(poisoned.scores, plain.scores, atol=3 * PER_TOKEN, rtol=0)
    (tmp_path / "generation_config.json").unlink()
    assert_same_model(load_decoder(tmp_path), tiny_decoder)


def test_a_tied_matrix_that_is_stored_twice_is_read_once(tmp_path: Path) -> None:
    expected = load_decoder(write_checkpoint(make_model(tie_word_embeddings=True), tmp_path))
    tensors = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in tensors
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(6)
    save_file(tensors, tmp_path / "model.safetensors")
    assert_same_model(load_decoder(tmp_path), expected)


def test_configs_written_before_transformers_5_mean_the_same(
    tiny_checkpoint: Path, tiny_decoder: Decoder, tmp_path: Path
) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    config |= {"rope_theta": config.pop("rope_parameters")["rope_theta"], "rope_scaling": None}
    config |= {"torch_dtype": config.pop("dtype"), "sliding_window": 4096, "use_sliding_window": False}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert_same_model(load_decoder(tmp_path), tiny_decoder)


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama"])
def test_bf16_is_as_near_the_truth_as_transformers_in_bf16(family: str, tmp_path: Path) -> None:
    """Two bf16 forwards round differently wherever their operations are ordered differently (transformers' own two
    attentions differ by 0.1 here); what can be asked is that ours is no farther from the same weights in fp32."""
    ours, theirs = 0.0, 0.0
    for seed in range(8):
        head_dim = None if family == "qwen2" else 12
        model = make_model(family, seed=seed, head_dim=head_dim).to(torch.bfloat16)
        directory = write_checkpoint(model, tmp_path / str(seed))
        decoder = load_decoder(directory)
        assert decoder.dtype == torch.bfloat16
        truth = all_log_probs(load_decoder(directory, dtype="float32"))
        ours += float((all_log_probs(decoder) - truth).abs().max())
        logits = torch.tensor(next_token_logits(model, PROMPT)([()])[0])
        theirs += float((logits.log_softmax(0) - truth).abs().max())
    assert 0 < ours < 1.25 * theirs


def all_log_probs(decoder: Decoder) -> torch.Tensor:
    """float32 [64]: log-probabilities of all tokens after PROMPT."""
    (result,) = BeamEngine(decoder, SMALL).search([ask(None, PROMPT, beam_width=64, num_steps=1)])
    return torch.from_numpy(result.scores)[np.argsort(result.tokens[:, 0])]


def test_the_stored_dtype_is_taken_where_the_config_names_none(tiny_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    del config["dtype"]
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert load_decoder(tmp_path).dtype == torch.float32
    assert load_decoder(tmp_path, dtype="bfloat16").dtype == torch.bfloat16
