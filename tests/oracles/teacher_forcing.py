"""Logits of whole paths by transformers itself, in one plain forward each: no KV, no sharing, no engine code."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from tests.oracles.recompute_beam import Logits, Path

_PATHS_AT_ONCE = 512


def path_logits(model: PreTrainedModel, prompt: Sequence[int], paths: Sequence[Path]) -> NDArray[np.float32]:
    """Logits float32 [paths, steps, vocab]: those that predict each token of each path, all of one length >= 1."""
    tokens = torch.tensor([[*prompt, *path[:-1]] for path in paths])
    with torch.inference_mode():
        chunks = [
            model(input_ids=chunk, use_cache=False, logits_to_keep=len(paths[0])).logits.float()
            for chunk in tokens.split(_PATHS_AT_ONCE)
        ]
    return torch.cat(chunks).numpy()


def next_token_logits(model: PreTrainedModel, prompt: Sequence[int]) -> Logits:
    """The `logits(prefixes)` that `recompute_beam` asks for: what follows the prompt and each prefix."""

    def logits(prefixes: list[Path]) -> list[list[float]]:
        ended = [(*prefix, 0) for prefix in prefixes]  # the last token of a path is predicted, never read
        rows: list[list[float]] = path_logits(model, prompt, ended)[:, -1].tolist()
        return rows

    return logits
