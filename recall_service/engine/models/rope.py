"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864), in the half-split convention of Hugging Face."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recall_service.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How frequencies are made: `default`, `linear` (positions divided by factor) or `llama3` (long waves slowed)."""

    kind: str
    theta: float
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192


def parse_rope(raw: Mapping[str, Any], source: str, max_positions: int) -> RopeScaling:
    """Read `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before it)."""
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise CheckpointError(f"{source}: rope parameters are {parameters!r}; give an object")
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    theta = parameters.get("rope_theta", raw.get("rope_theta", 10_000.0))
    if kind not in ("default", "linear", "llama3"):
        raise CheckpointError(f"{source}: rope_type is {kind!r}; supported are default, linear and llama3")
    if parameters.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) != 1.0:
        raise CheckpointError(f"{source}: partial_rotary_factor is set; only whole heads are rotated here")
    try:
        rope = RopeScaling(
            kind=kind,
            theta=float(theta),
            factor=float(parameters["factor"]) if kind != "default" else 1.0,
            low_freq_factor=float(parameters["low_freq_factor"]) if kind == "llama3" else 1.0,
            high_freq_factor=float(parameters["high_freq_factor"]) if kind == "llama3" else 4.0,
            original_max_positions=int(parameters.get("original_max_position_embeddings", max_positions)),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"{source}: rope parameters of type {kind} lack or misstate {error}") from None
    for name in ("theta", "factor", "low_freq_factor", "high_freq_factor"):
        if not 0 < (value := getattr(rope, name)) < math.inf:
            raise CheckpointError(f"{source}: {name} of the rope parameters is {value}; give a positive number")
    if kind == "llama3" and rope.low_freq_factor >= rope.high_freq_factor:
        raise CheckpointError(
            f"{source}: low_freq_factor {rope.low_freq_factor} of the rope parameters is not below high_freq_factor "
            f"{rope.high_freq_factor}; correct one of them"
        )
    return rope


def inverse_frequencies(rope: RopeScaling, head_dim: int) -> Tensor:
    """float32 [head_dim / 2]: radians per position of each rotated pair."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _slow_long_waves(frequencies, rope)
    return frequencies


def _slow_long_waves(frequencies: Tensor, rope: RopeScaling) -> Tensor:
    """Llama 3.1: slow waves longer than the original context by `factor`, keep short ones, blend those between."""
    waves_in_context = rope.original_max_positions * frequencies / (2 * math.pi)
    keep = (waves_in_context - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return (1 - keep) * frequencies / rope.factor + keep * frequencies


def rotation_table(rope: RopeScaling, head_dim: int, num_positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines `[num_positions, 1, head_dim]`, made in fp32 and rounded once to `dtype`."""
    angles = torch.outer(torch.arange(num_positions).float(), inverse_frequencies(rope, head_dim))
    angles = torch.cat([angles, angles], dim=-1).unsqueeze(1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(vectors: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate `[n, heads, head_dim]` by per-row tables `[n, 1, head_dim]`."""
    first, second = vectors.chunk(2, dim=-1)
    rotated = vectors * cosines
    rotated_first, rotated_second = rotated.chunk(2, dim=-1)
    sines = sines[..., : first.shape[-1]]  # both halves of the table are the same
    rotated_first.addcmul_(second, sines, value=-1)
    rotated_second.addcmul_(first, sines)
    return rotated
