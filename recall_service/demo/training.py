"""Trains the demo's model: a small Qwen3 that predicts the next SID token of a history, within a budget of wall time.

The learning rate follows the share of the budget that has passed, so a slow or busy machine takes fewer steps and
still ends with an annealed model. The seed fixes the first weights and the order of the batches; how many steps fit
depends on the machine, so the weights of two runs differ.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from recall_service.demo.assortment import LAYOUT
from recall_service.demo.shop import Shop
from recall_service.demo.tokens import BOS, EOS, PAD, SPECIAL_TOKENS, make_tokenizer, sid_token_ids, vocabulary

MAX_HISTORY = 20
_BATCH_USERS = 64
_PEAK_LEARNING_RATE = 4e-3
_TRAINING_SHARE = 0.98  # of the seconds allowed; the rest is for the last step and for writing
_WARM_UP_SHARE = 0.05  # of the training
_LENGTH_JITTER = 4.0  # how far, in items, the order by length is shaken: batches mix a little and pad a little
_IGNORED = -100  # a label that has no loss


def train_checkpoint(
    shop: Shop, directory: Path, *, max_seconds: float = 60.0, seed: int = 7, progress: bool = True
) -> None:
    """Train on the shop's training users and write a Hugging Face checkpoint, tokenizer included, into `directory`.

    max_seconds bounds the wall time of the whole call. With `progress`, loss and steps are shown on stderr.
    Raises ValueError when there is no time to train.
    """
    if not max_seconds > 0:
        raise ValueError(f"max_seconds: {max_seconds}; give a positive number of seconds to train for")
    started = time.monotonic()
    budget_seconds = max_seconds * _TRAINING_SHARE
    model = _make_model(seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    with _progress_bar(shown=progress) as bar:
        task = bar.add_task("training", total=budget_seconds, news="")
        for step, batch in enumerate(_batches(shop, np.random.default_rng(seed)), start=1):
            loss = _train_step(model, optimizer, batch, _learning_rate((time.monotonic() - started) / budget_seconds))
            elapsed_seconds = time.monotonic() - started
            bar.update(task, completed=elapsed_seconds, news=f"step {step}, loss {loss:.3f}")
            if elapsed_seconds >= budget_seconds:
                break
    model.save_pretrained(directory)
    make_tokenizer(LAYOUT).save_pretrained(directory)


def _progress_bar(*, shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not shown)


def _make_model(seed: int) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=len(vocabulary(LAYOUT)),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=SPECIAL_TOKENS.index(PAD),
        bos_token_id=SPECIAL_TOKENS.index(BOS),
        eos_token_id=SPECIAL_TOKENS.index(EOS),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def _learning_rate(share: float) -> float:
    """Linear warm-up, then a cosine down to 0, over the share of the training that has passed."""
    warm_up = min(1.0, share / _WARM_UP_SHARE)
    return _PEAK_LEARNING_RATE * warm_up * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))


def _batches(shop: Shop, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Batches without end: token ids [users, 1 + 3 x longest history of the batch], padded on the right."""
    item_tokens = sid_token_ids(LAYOUT, shop.assortment.sids)
    histories = [shop.train.of_user(user)[-MAX_HISTORY:] for user in range(shop.train.num_users)]
    lens = np.array([len(history) for history in histories])
    while True:
        by_length = np.argsort(lens + rng.uniform(0, _LENGTH_JITTER, len(lens)))
        batches = np.array_split(by_length, math.ceil(len(by_length) / _BATCH_USERS))
        for place in rng.permutation(len(batches)):
            yield _pad([item_tokens[histories[user]].ravel() for user in batches[place]])


def _pad(sequences: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """<bos>, a sequence, and <pad> up to the longest: int64 [sequences, 1 + longest]."""
    batch = np.full((len(sequences), 1 + max(map(len, sequences))), SPECIAL_TOKENS.index(PAD), np.int64)
    batch[:, 0] = SPECIAL_TOKENS.index(BOS)
    for row, sequence in zip(batch, sequences, strict=True):
        row[1 : 1 + len(sequence)] = sequence
    return batch


def _train_step(
    model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer, batch: NDArray[np.int64], learning_rate: float
) -> float:
    """One step of the optimizer; returns the mean loss in nats per token."""
    tokens = torch.from_numpy(batch)
    # Padding is on the right, so no real token attends to it and the causal mask is enough.
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits  # [users, tokens - 1, vocabulary]
    labels = tokens[:, 1:].masked_fill(tokens[:, 1:] == SPECIAL_TOKENS.index(PAD), _IGNORED)
    loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    return loss.item()
