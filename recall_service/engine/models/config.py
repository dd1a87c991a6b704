"""The shape of a decoder, read from a Hugging Face config.json and checked field by field."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recall_service.engine.models.rope import RopeScaling, parse_rope
from recall_service.errors import CheckpointError

FAMILIES = ("qwen3", "qwen2", "llama")
_MAX_POSITIONS = 1 << 20


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """What the three families differ in, and what they share."""

    family: str
    vocab_size: int  # rows of the embedding and of the head, padding rows included
    hidden_size: int
    mlp_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeScaling
    max_positions: int
    tied_head: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    dtype_name: str | None


def read_config(directory: Path) -> DecoderConfig:
    """Read `directory`/config.json. Raises CheckpointError naming the file, the field and the remedy."""
    path = directory / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; point at a Hugging Face checkpoint directory") from None
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is JSON, and no int of Python's
        raise CheckpointError(f"{path}: not readable as JSON ({error}); restore it from the checkpoint") from None
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path}: holds a {type(raw).__name__}, not an object; restore it from the checkpoint")
    return parse_config(raw, str(path))


def parse_config(raw: Mapping[str, Any], source: str) -> DecoderConfig:
    """A config.json's content as a DecoderConfig; `source` names it in errors."""
    fields = _Fields(raw, source)
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(f"{source}: model_type is {family!r}; supported are {', '.join(FAMILIES)}")
    if raw.get("quantization_config"):
        raise CheckpointError(f"{source}: quantization_config is set; give an unquantised fp32 or bf16 checkpoint")
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{source}: hidden_act is {raw['hidden_act']!r}; supported is silu")
    max_positions = fields.positive("max_position_embeddings")
    if max_positions > _MAX_POSITIONS:
        raise CheckpointError(
            f"{source}: max_position_embeddings is {max_positions}; at most {_MAX_POSITIONS:,} are supported, for each "
            "has its place in a table: lower it to what prompts need"
        )
    _refuse_sliding_window(raw, source, max_positions)
    hidden_size, num_heads = fields.positive("hidden_size"), fields.positive("num_attention_heads")
    num_kv_heads = fields.positive("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"{source}: num_attention_heads {num_heads} is no multiple of num_key_value_heads {num_kv_heads}"
        )
    head_dim = fields.positive("head_dim", 128 if family == "qwen3" else hidden_size // num_heads)
    if head_dim % 2:
        raise CheckpointError(f"{source}: head_dim is {head_dim}; rotary embeddings need an even one")
    attention_bias = bool(raw.get("attention_bias", False))
    return DecoderConfig(
        family=family,
        vocab_size=fields.positive("vocab_size"),
        hidden_size=hidden_size,
        mlp_size=fields.positive("intermediate_size"),
        num_layers=fields.positive("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope=parse_rope(raw, source, max_positions),
        max_positions=max_positions,
        tied_head=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2" or attention_bias,
        out_bias=family != "qwen2" and attention_bias,
        mlp_bias=family == "llama" and bool(raw.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        dtype_name=fields.text("dtype") or fields.text("torch_dtype"),
    )


def _refuse_sliding_window(raw: Mapping[str, Any], source: str, max_positions: int) -> None:
    """Attention here is full; a window that no prompt can outgrow is the same thing."""
    layer_types = raw.get("layer_types") or []
    if not isinstance(layer_types, list):
        raise CheckpointError(f"{source}: layer_types is {layer_types!r}; give a list of names, or leave it out")
    windowed = "sliding_attention" in layer_types or raw.get("use_sliding_window", False)
    window = raw.get("sliding_window")
    if windowed and window is not None and not (isinstance(window, int) and window >= max_positions):
        raise CheckpointError(
            f"{source}: sliding_window is {window}, under max_position_embeddings {max_positions}; "
            "only full attention is supported: lower max_position_embeddings to the window"
        )


class _Fields:
    """Typed access to the raw mapping, with errors that name the field."""

    def __init__(self, raw: Mapping[str, Any], source: str) -> None:
        self._raw, self._source = raw, source

    def positive(self, name: str, default: int | None = None) -> int:
        value = self._raw.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"{self._source}: {name} is {value!r}; give a positive integer")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._raw.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise CheckpointError(f"{self._source}: {name} is {value!r}; give a positive number")
        return float(value)

    def text(self, name: str) -> str | None:
        value = self._raw.get(name)
        if not isinstance(value, str | None):
            raise CheckpointError(f"{self._source}: {name} is {value!r}; give a name, or leave it out")
        return value
