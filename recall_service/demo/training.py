"""Trains the demo's model: a small Qwen3 that predicts the next SID token of a history, within a budget of wall time.

The learning rate follows the share of the budget that has passed, so a slow or busy machine takes fewer steps and
still ends with an annealed model. The seed fixes the first weights and the order of the batches; how many steps fit
depends on the machine, so the weights of two runs differ.
"""

import math
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from recall_service.demo.assortment import LAYOUT
from recall_service.demo.batches import BOS_ID, PAD_ID, endless_batches
from recall_service.demo.one_thread import one_thread
from recall_service.demo.quiet import no_transformers_bars
from recall_service.demo.shop import Shop
from recall_service.demo.tokens import EOS, SPECIAL_TOKENS, make_tokenizer, vocabulary

MAX_HISTORY = 20  # the newest items of a user that the model reads
_TRAINING_SHARE = 0.98  # of the seconds allowed; the rest is for the last step and for writing
_WARM_UP_SHARE = 0.05  # of the training
_MATRIX_LEARNING_RATE = 0.015
_OTHER_LEARNING_RATE = 0.005
_WEIGHT_DECAY = 0.01


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
    optimizers = _make_optimizers(model)
    batches = endless_batches(shop, np.random.default_rng(seed), max_history=MAX_HISTORY)
    with one_thread(), _progress_bar(shown=progress) as bar:
        task = bar.add_task("training", total=budget_seconds, news="")
        for step, batch in enumerate(batches, start=1):
            _set_learning_rates(optimizers, (time.monotonic() - started) / budget_seconds)
            loss = _train_step(model, optimizers, batch)
            elapsed_seconds = time.monotonic() - started
            bar.update(task, completed=elapsed_seconds, news=f"step {step}, loss {loss:.3f}")
            if elapsed_seconds >= budget_seconds:
                break
    _write_checkpoint(model, directory)


def _make_model(seed: int) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=len(vocabulary(LAYOUT)),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=SPECIAL_TOKENS.index(EOS),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def _make_optimizers(model: Qwen3ForCausalLM) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices between the layers, which needs far fewer steps than AdamW, and AdamW for all else.

    Muon: Jordan et al. 2024; scaled to AdamW's step size as in Liu et al. 2025, arXiv:2502.16982.
    """
    embeddings = {id(parameter) for parameter in model.get_input_embeddings().parameters()}
    matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in embeddings]
    others = [p for p in model.parameters() if p.ndim != 2 or id(p) in embeddings]
    return (
        torch.optim.Muon(
            [{"params": matrices, "peak_lr": _MATRIX_LEARNING_RATE}],
            weight_decay=_WEIGHT_DECAY,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(
            [{"params": others, "peak_lr": _OTHER_LEARNING_RATE}],
            betas=(0.9, 0.98),
            weight_decay=_WEIGHT_DECAY,
            fused=True,
        ),
    )


def _set_learning_rates(optimizers: tuple[torch.optim.Optimizer, ...], share: float) -> None:
    """Linear warm-up times a cosine down to 0, over the share of the training that has passed."""
    factor = min(1.0, share / _WARM_UP_SHARE) * 0.5 * (1 + math.cos(math.pi * share))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor


def _train_step(
    model: Qwen3ForCausalLM, optimizers: tuple[torch.optim.Optimizer, ...], batch: NDArray[np.int64]
) -> float:
    """Learn from one batch of token ids [users, length]; returns the mean loss in nats per SID token."""
    tokens = torch.from_numpy(batch)
    # Padding is on the right, so no real token attends to it and the causal mask is enough.
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits  # [users, length - 1, vocabulary]
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD_ID)
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def _write_checkpoint(model: Qwen3ForCausalLM, directory: Path) -> None:
    with no_transformers_bars():
        model.save_pretrained(directory)
    make_tokenizer(LAYOUT).save_pretrained(directory)


def _progress_bar(*, shown: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}"), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not shown)
