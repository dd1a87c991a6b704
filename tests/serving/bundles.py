"""Small bundles on disk: a random Qwen3, a byte-level tokenizer with SID tokens, a catalogue, and a bundle.toml."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from item_catalog.building.builder import build_catalog
from item_catalog.catalog import Catalog
from item_catalog.sid import SidLayout
from item_catalog.storage.directory import save_catalog
from recall_service.engine.scheduler import EngineLimits
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.hooks import Observer
from tests.make_checkpoint import make_model, write_checkpoint


def token_templates(num_levels: int) -> tuple[str, ...]:
    """<a_{code}>, <b_{code}>, ..., one for each level."""
    return tuple(f"<{chr(ord('a') + level)}_{{code}}>" for level in range(num_levels))


LAYOUT = SidLayout((4, 5, 6))
TOKEN_TEMPLATES = token_templates(LAYOUT.num_levels)
LIMITS = EngineLimits(max_rows=128, context_pages=64, page_len=8, max_prompt_tokens=120)
FILTER_CACHE_BYTES = 1 << 24
VOCAB_SIZE = 280  # the tokenizer's 274 and some padding rows
NUM_BYTES = 256

_BASE = {
    "bundle": {"name": "tiny"},
    "sid": {"tokens": list(TOKEN_TEMPLATES)},
    "search": {"beam_width": 12, "max_beam_width": 64, "num_items": 10, "max_num_items": 64},
    "prompt": {"prefix": "<bos>", "max_history": 6},
}


def write_bundle(directory: Path, *, seed: int = 0, first_item: int = 0, **changes: dict[str, Any]) -> Path:
    """A bundle of 50 items on 40 SIDs, in `directory`, which is made. `changes` are keys of sections; returns it.

    seed: of the weights. first_item: the number that the item ids begin with.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_model(directory / "model", seed)
    save_catalog(small_catalog(first_item), directory / "catalog")
    write_toml(directory, **changes)
    return directory


def write_model(directory: Path, seed: int = 0, **changes: Any) -> None:
    """Checkpoint and tokenizer; `changes` go into the model's config."""
    write_checkpoint(small_model(seed, tuple(changes.items())), directory)
    byte_tokenizer().save_pretrained(directory)


def write_toml(directory: Path, **changes: dict[str, Any]) -> None:
    """bundle.toml with `changes` merged into its sections; a key given as None is left out."""
    text = ""
    for section in (*_BASE, *(name for name in changes if name not in _BASE)):
        values = {**_BASE.get(section, {}), **changes.get(section, {})}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value is not None]
        text += f"[{section}]\n{''.join(lines)}"
    (directory / "bundle.toml").write_text(text, encoding="utf-8")


@cache
def small_model(seed: int = 0, changes: tuple[tuple[str, Any], ...] = ()) -> PreTrainedModel:
    """The random model of `write_model`."""
    return make_model("qwen3", seed=seed, **{"vocab_size": VOCAB_SIZE, **dict(changes)})


@cache
def byte_tokenizer(codebook_sizes: tuple[int, ...] = LAYOUT.codebook_sizes) -> PreTrainedTokenizerFast:
    """Bytes, "th" and "the" by merges, and added tokens: <bos>, <a_0> to <a_3>, <b_0> to <b_4>, <c_0> to <c_5>."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*alphabet, "th", "the"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken("<bos>", special=True)])
    for template, size in zip(token_templates(len(codebook_sizes)), codebook_sizes, strict=True):
        tokenizer.add_tokens([AddedToken(template.format(code=code), normalized=False) for code in range(size)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>")


def small_rows(first_item: int = 0) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[str]]:
    """50 items on 40 SIDs: the first four SIDs carry two to five items each."""
    codes = np.random.default_rng(3).permutation(np.prod(LAYOUT.codebook_sizes))[:40]
    sids = np.stack(np.unravel_index(codes, LAYOUT.codebook_sizes), axis=1)
    rows = [*range(40), *(leaf for leaf in range(4) for _ in range(leaf + 1))]
    return sids[rows], [f"item-{first_item + number:03d}" for number in range(len(rows))]


def small_attributes() -> dict[str, list[Any]]:
    """What is known of the items of `small_rows`, row by row; None where nothing is."""
    return {
        "category": [("shoes", "boots", "hats", None)[number % 4] for number in range(50)],
        "in_stock": [number % 3 != 0 for number in range(50)],
        "price": [None if number % 7 == 0 else number * 1.5 for number in range(50)],
        "published": [1_700_000_000 + 1_000 * (number % 11) for number in range(50)],
    }


@cache
def small_catalog(first_item: int = 0) -> Catalog:
    """The catalogue of `small_rows` and `small_attributes`."""
    attributes = {name: pa.array(values) for name, values in small_attributes().items()}
    return build_catalog(LAYOUT, *small_rows(first_item), attributes)


def small_registry(*directories: Path, observer: Observer, limits: EngineLimits = LIMITS) -> Registry:
    """Bundles gone live, the first one the default; the caller closes it."""
    return open_registry(directories, "", Launch(limits, observer, FILTER_CACHE_BYTES))
