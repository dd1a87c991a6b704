"""The work that engines are timed on: a checkpoint of random weights, prompts of random tokens, a random catalogue.

Random weights are fair: what a beam search costs does not depend on what they say. Everything follows from fixed seeds
and is written once to a cache directory. This module knows no engine.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.sid import SidLayout
from item_catalog.storage.directory import open_catalog, save_catalog

FIRST_TOKEN = 2  # 0 begins and pads a text, 1 ends it
NEW_TOKENS = 3
SHORT_PROMPTS, SHORT_NEW_TOKENS = (16, 32, 48, 64), 10


@dataclass(frozen=True, slots=True)
class Workload:
    """The shape of a model and of its catalogue. Levels take token ranges of their own, one after another."""

    vocab_size: int
    hidden_size: int
    mlp_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_items: int
    codebook_size: int

    @property
    def level_tokens(self) -> list[NDArray[np.int64]]:
        """The token id of every code, int64 [codebook_size] per level: the last ranges of the vocabulary."""
        first = self.vocab_size - NEW_TOKENS * self.codebook_size
        ranges = first + np.arange(NEW_TOKENS * self.codebook_size, dtype=np.int64)
        return list(ranges.reshape(NEW_TOKENS, self.codebook_size))

    def prompt(self, length: int, seed: int) -> NDArray[np.int64]:
        """Random token ids, int64 [length]."""
        return np.random.default_rng((seed, length)).integers(FIRST_TOKEN, self.vocab_size, length)


QWEN3_600M = Workload(
    vocab_size=32_768,
    hidden_size=1024,
    mlp_size=3072,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    num_items=1_000_000,
    codebook_size=8192,
)
TINY = Workload(
    vocab_size=512,
    hidden_size=32,
    mlp_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    num_items=2000,
    codebook_size=128,
)


def cache_directory() -> Path:
    """Where checkpoints and catalogues are kept unless told otherwise: in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "recall-service" / "benchmarks"


def prepare_checkpoint(workload: Workload, directory: Path) -> Path:
    """The checkpoint at `directory`, bf16, with a tokenizer of one word a token; written when there is none."""
    if (directory / "tokenizer_config.json").is_file():
        return directory
    logging.disable_progress_bar()
    config = Qwen3Config(
        vocab_size=workload.vocab_size,
        hidden_size=workload.hidden_size,
        intermediate_size=workload.mlp_size,
        num_hidden_layers=workload.num_layers,
        num_attention_heads=workload.num_heads,
        num_key_value_heads=workload.num_kv_heads,
        head_dim=workload.head_dim,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
    words = Tokenizer(models.WordLevel({f"<t{token}>": token for token in range(workload.vocab_size)}, "<t0>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    begin, end = "<t0>", "<t1>"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token=begin, eos_token=end, pad_token=begin)
    tokenizer.save_pretrained(directory)
    return directory


def prepare_catalog(workload: Workload, directory: Path) -> Catalog:
    """The catalogue at `directory`, of items with uniformly random SIDs; built when there is none."""
    if not directory.exists():
        codes = np.random.default_rng(0).integers(0, workload.codebook_size, (workload.num_items, NEW_TOKENS))
        layout = SidLayout((workload.codebook_size,) * NEW_TOKENS)
        save_catalog(build_catalog(layout, codes, np.arange(workload.num_items)), directory)
    return open_catalog(directory)
