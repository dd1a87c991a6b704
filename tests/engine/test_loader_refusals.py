"""Checkpoints that are not fit to load: each one error that names the file, the value and the remedy."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from recall_service.engine.models.loader import load_decoder
from recall_service.errors import CheckpointError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0}
NORM = "model.norm.weight"


def set_config(**fields: Any) -> Callable[[Path], None]:
    """Change fields of config.json; None removes one."""

    def change(directory: Path) -> None:
        path = directory / "config.json"
        config = json.loads(path.read_text(encoding="utf-8")) | fields
        kept = {name: value for name, value in config.items() if value is not None}
        path.write_text(json.dumps(kept), encoding="utf-8")

    return change


def set_tensor(name: str, tensor: torch.Tensor | None) -> Callable[[Path], None]:
    """Replace or add a tensor; None removes it."""

    def change(directory: Path) -> None:
        tensors = load_file(directory / WEIGHTS) | {name: tensor}
        save_file({key: value for key, value in tensors.items() if value is not None}, directory / WEIGHTS)

    return change


def write(name: str, content: str) -> Callable[[Path], None]:
    return lambda directory: (directory / name).write_text(content, encoding="utf-8")


def set_index(weight_map: Any) -> Callable[[Path], None]:
    """Only an index, over whatever shards it names."""

    def change(directory: Path) -> None:
        (directory / WEIGHTS).rename(directory.parent / "outside.safetensors")
        (directory / INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")

    return change


def truncate(directory: Path) -> None:
    content = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(content[: len(content) // 2])


def keep_only_pickled(directory: Path) -> None:
    """The pickled file is no pickle at all: whoever opens it fails in another way."""
    (directory / WEIGHTS).unlink()
    (directory / "pytorch_model.bin").write_bytes(b"never opened")


REFUSALS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda d: (d / "config.json").unlink(), r"config\.json: no such file; point at a Hugging Face"),
    "config no json": (write("config.json", "{"), r"config\.json: not readable as JSON .*; restore it"),
    "config too deep": (write("config.json", "[" * 100_000), r"config\.json: not readable as JSON .*; restore it"),
    "config too long a number": (
        write("config.json", '{"vocab_size": ' + "9" * 5_000 + "}"),
        r"config\.json: not readable as JSON .*; restore it",
    ),
    "config a list": (write("config.json", "[]"), r"config\.json: holds a list, not an object; restore it"),
    "no family": (set_config(model_type=None), r"config\.json: model_type is None; supported are qwen3, qwen2, llama"),
    "other family": (set_config(model_type="gpt2"), r"config\.json: model_type is 'gpt2'; supported are"),
    "quantised": (
        set_config(quantization_config={"bits": 4}),
        r"config\.json: quantization_config is set; give an unquantised",
    ),
    "other activation": (set_config(hidden_act="gelu"), r"config\.json: hidden_act is 'gelu'; supported is silu"),
    "fp16 config": (set_config(dtype="float16"), r"config\.json: dtype is 'float16'; supported are float32, bfloat16"),
    "dtype a list": (set_config(dtype=["float32"]), r"config\.json: dtype is \['float32'\]; give a name"),
    "more positions than memory": (
        set_config(max_position_embeddings=2**40),
        r"config\.json: max_position_embeddings is 1099511627776; at most 1,048,576 are supported",
    ),
    "eps infinite": (set_config(rms_norm_eps=math.inf), r"config\.json: rms_norm_eps is inf; give a positive number"),
    "layer types a number": (set_config(layer_types=5), r"config\.json: layer_types is 5; give a list of names"),
    "window a word": (
        set_config(sliding_window="64", use_sliding_window=True),
        r"config\.json: sliding_window is 64, under max_position_embeddings 256",
    ),
    "no size": (set_config(hidden_size=None), r"config\.json: hidden_size is None; give a positive integer"),
    "size a word": (set_config(vocab_size="64"), r"config\.json: vocab_size is '64'; give a positive integer"),
    "eps zero": (set_config(rms_norm_eps=0), r"config\.json: rms_norm_eps is 0; give a positive number"),
    "ragged heads": (
        set_config(num_key_value_heads=3),
        r"config\.json: num_attention_heads 4 is no multiple of num_key_value_heads 3",
    ),
    "odd head": (set_config(head_dim=11), r"config\.json: head_dim is 11; rotary embeddings need an even one"),
    "sliding window": (
        set_config(sliding_window=64, use_sliding_window=True),
        r"config\.json: sliding_window is 64, under max_position_embeddings 256; .*lower max_position_embeddings",
    ),
    "sliding layers": (
        set_config(sliding_window=64, layer_types=["full_attention", "sliding_attention"]),
        r"config\.json: sliding_window is 64",
    ),
    "rope yarn": (
        set_config(rope_parameters={"rope_type": "yarn", "factor": 2.0}),
        r"config\.json: rope_type is 'yarn'; supported are default, linear and llama3",
    ),
    "rope of before 5": (
        set_config(rope_parameters=None, rope_scaling={"type": "dynamic", "factor": 2.0}),
        r"config\.json: rope_type is 'dynamic'; supported are",
    ),
    "rope incomplete": (
        set_config(rope_parameters=LLAMA3),
        r"config\.json: rope parameters of type llama3 lack or misstate 'high_freq_factor'",
    ),
    "rope infinite": (
        set_config(rope_parameters={"rope_type": "default", "rope_theta": math.inf}),
        r"config\.json: theta of the rope parameters is inf; give a positive number",
    ),
    "rope no integer": (
        set_config(rope_parameters=LLAMA3 | {"high_freq_factor": 4.0, "original_max_position_embeddings": math.inf}),
        r"config\.json: rope parameters of type llama3 lack or misstate",
    ),
    "rope crossed": (
        set_config(rope_parameters=LLAMA3 | {"high_freq_factor": 1.0}),
        r"config\.json: low_freq_factor 1\.0 of the rope parameters is not below high_freq_factor 1\.0",
    ),
    "rope no object": (
        set_config(rope_parameters="linear"),
        r"config\.json: rope parameters are 'linear'; give an obj",
    ),
    "rope partial": (
        set_config(partial_rotary_factor=0.5),
        r"config\.json: partial_rotary_factor is set; only whole heads are rotated",
    ),
    "no weights": (lambda d: (d / WEIGHTS).unlink(), r"no weights; save it with save_pretrained"),
    "pickled weights": (keep_only_pickled, r"only pickled weights \(pytorch_model\.bin\), which are never read; save"),
    "truncated": (truncate, r"model\.safetensors: truncated or no safetensors file .*; fetch it again"),
    "empty file": (write(WEIGHTS, ""), r"model\.safetensors: truncated or no safetensors file .*; fetch it again"),
    "no tensors": (lambda d: save_file({}, d / WEIGHTS), r"model\.safetensors: holds no tensors; save the checkpoint"),
    "missing tensor": (set_tensor(NORM, None), r"tensor model\.norm\.weight is missing; save the whole model again"),
    "missing head": (set_tensor("lm_head.weight", None), r"tensor lm_head\.weight is missing; save the whole model"),
    "wrong shape": (
        set_tensor(NORM, torch.ones(31)),
        r"model\.safetensors: tensor model\.norm\.weight has shape \(31,\), config\.json asks for \(32,\)",
    ),
    "fp16 tensor": (
        set_tensor(NORM, torch.ones(32, dtype=torch.float16)),
        r"model\.safetensors: tensor model\.norm\.weight is stored as F16; convert the checkpoint to F32 or BF16",
    ),
    "adapter": (
        set_tensor("model.layers.0.self_attn.q_proj.lora_A.weight", torch.ones(2, 32)),
        r"tensor model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight and 0 others .*; merge adapters",
    ),
    "one layer too many": (
        set_config(num_hidden_layers=1, layer_types=["full_attention"]),
        r"tensor model\.layers\.1\.\S+ and 10 others are not of a plain qwen3 decoder",
    ),
    "shard outside": (
        set_index({NORM: "../outside.safetensors"}),
        r"index\.json: shard '\.\./outside\.safetensors' is no safetensors file of this directory; refused",
    ),
    "shard pickled": (set_index({NORM: "pytorch_model.bin"}), r"shard 'pytorch_model\.bin' is no safetensors file"),
    "shard missing": (
        set_index({NORM: "model-00001-of-00002.safetensors"}),
        r"model-00001-of-00002\.safetensors: this shard is missing; fetch the whole checkpoint",
    ),
    "shard a number": (set_index({NORM: 5}), r"index\.json: shard '5' is no safetensors file of this directory"),
    "shard beyond a file's name": (
        set_index({NORM: "x" * 300 + ".safetensors"}),
        r"x\.safetensors: this shard is missing; fetch the whole checkpoint",
    ),
    "index too deep": (
        lambda directory: [set_index({})(directory), write(INDEX, "[" * 100_000)(directory)],
        r"index\.json: no readable weight_map .*; restore it from the checkpoint",
    ),
    "index a list": (set_index([]), r"index\.json: no readable weight_map .*; restore it from the checkpoint"),
}


@pytest.mark.parametrize(("spoil", "message"), REFUSALS.values(), ids=list(REFUSALS))
def test_is_refused_with_file_value_and_remedy(
    tiny_checkpoint: Path, tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    directory = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, directory)
    load_decoder(directory)  # it is fit until it is spoilt
    spoil(directory)
    with pytest.raises(CheckpointError) as refused:
        load_decoder(directory)
    assert re.search(message, str(refused.value)), str(refused.value)
    assert str(directory) in str(refused.value)


def test_a_dtype_that_the_engine_does_not_compute_in_is_refused(tiny_checkpoint: Path) -> None:
    with pytest.raises(CheckpointError, match="dtype: 'float16'; supported are auto, float32, bfloat16"):
        load_decoder(tiny_checkpoint, dtype="float16")


def test_a_window_that_no_prompt_can_outgrow_is_full_attention(tiny_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path, dirs_exist_ok=True)
    set_config(sliding_window=256, use_sliding_window=True)(tmp_path)
    assert load_decoder(tmp_path).config.max_positions == 256
