"""Small random Hugging Face checkpoints, made and written by transformers.

Weights are drawn wider than transformers would, so that logits spread by 2 to 3 and a wrong beam shows.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config, Qwen3Config
from transformers.utils import logging

CONFIGS = {"qwen3": Qwen3Config, "qwen2": Qwen2Config, "llama": LlamaConfig}
FAMILY_CHANGES: dict[str, dict[str, Any]] = {
    "qwen3-tied": {"family": "qwen3", "tie_word_embeddings": True},
    "qwen3-untied": {"family": "qwen3"},
    "qwen3-attention-bias": {"family": "qwen3", "attention_bias": True},
    "qwen2": {"family": "qwen2", "head_dim": None},
    "llama": {"family": "llama"},
    "llama-biases": {"family": "llama", "attention_bias": True, "mlp_bias": True},
    "llama-rope-llama3": {
        "family": "llama",
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "llama-rope-linear": {
        "family": "llama",
        "rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0},
    },
}


def make_model(family: str = "qwen3", *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A random fp32 model of 2 layers, hidden size 32, 4 heads over 2 KV heads, 64 tokens, 256 positions.

    `changes` go into the config. Every parameter is random, norms and biases too, so that dropping one shows.
    """
    settings: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    } | changes
    config = CONFIGS[family](**{name: value for name, value in settings.items() if value is not None})
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if "norm" in name else 0.0
            scale = 0.5 if "embed" in name or "lm_head" in name else 0.12
            parameter.copy_(centre + scale * torch.randn(parameter.shape, generator=generator))
    return model


def write_checkpoint(model: PreTrainedModel, directory: Path, **options: Any) -> Path:
    """Save as transformers does, and return `directory`; `options` go to save_pretrained."""
    logging.disable_progress_bar()
    model.save_pretrained(directory, **options)
    return directory
