"""The demo's own proof: what the server should have answered, worked out the slow way through transformers.

Every prefix of every SID is run through the model with the whole prompt before it, so the model's ranking of the whole
catalogue is known, and a beam search is just a matter of looking scores up. Shares no code with the engine.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen3ForCausalLM

from recall_service.demo.one_thread import one_thread
from recall_service.demo.quiet import no_transformers_bars

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class BruteForce:
    """All SIDs and their scores after one prompt.

    prefixes: per depth 1..levels, every distinct prefix in lexicographic order, int64 [prefixes, depth].
    scores: per depth, their summed log-probabilities over the whole vocabulary, float64 [prefixes].
    """

    prefixes: tuple[NDArray[np.int64], ...]
    scores: tuple[NDArray[np.float64], ...]

    def among(self, sids: NDArray[np.integer]) -> "BruteForce":
        """The like of a catalogue that holds only those of `sids` int [n, levels], with the scores they have anyway."""
        kept = [_rows_in(prefixes, np.unique(sids[:, : prefixes.shape[1]], axis=0)) for prefixes in self.prefixes]
        return BruteForce(
            tuple(prefixes[rows] for prefixes, rows in zip(self.prefixes, kept, strict=True)),
            tuple(scores[rows] for scores, rows in zip(self.scores, kept, strict=True)),
        )

    def beam(self, width: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """What a beam of `width` ends with: SIDs [n, levels] and scores [n], best first."""
        alive = np.zeros((1, 0), np.int64)
        for prefixes, scores in zip(self.prefixes, self.scores, strict=True):
            children = np.flatnonzero(_rows_in(prefixes[:, :-1], alive))
            best = children[np.argsort(-scores[children], kind="stable")][:width]
            alive = prefixes[best]
        return alive, scores[best]

    def top(self, count: int) -> NDArray[np.float64]:
        """The greatest `count` scores of the whole catalogue, greatest first."""
        return -np.sort(-self.scores[-1])[:count]


def brute_force(
    checkpoint: Path, prompt: NDArray[np.int64], sids: NDArray[np.integer], level_tokens: NDArray[np.int64]
) -> BruteForce:
    """Score every prefix of `sids` int [n, levels] after `prompt` int64 [prompt_len].

    level_tokens: int64 [levels, codebook_size], the token id of each code.
    """
    with no_transformers_bars():
        model = Qwen3ForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    distinct = np.unique(sids.astype(np.int64), axis=0)
    prefixes, scores = [], []
    parents, parent_scores = np.zeros((1, 0), np.int64), np.zeros(1)
    with torch.inference_mode(), one_thread():
        for level in range(distinct.shape[1]):
            log_probs = _next_log_probs(model, prompt, _tokens(parents, level_tokens))
            children = np.unique(distinct[:, : level + 1], axis=0)
            parent_of = np.cumsum(np.append(True, (children[1:, :-1] != children[:-1, :-1]).any(axis=1))) - 1
            chosen = level_tokens[level, children[:, -1]]
            parents, parent_scores = children, parent_scores[parent_of] + log_probs[parent_of, chosen]
            prefixes.append(parents)
            scores.append(parent_scores)
    return BruteForce(tuple(prefixes), tuple(scores))


def _tokens(sids: NDArray[np.int64], level_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Codes [n, depth] -> token ids [n, depth]."""
    return level_tokens[np.arange(sids.shape[1]), sids]


def _next_log_probs(
    model: Qwen3ForCausalLM, prompt: NDArray[np.int64], paths: NDArray[np.int64]
) -> NDArray[np.float64]:
    """float64 [paths, vocab]: log-probabilities of the token after the prompt and each path int64 [paths, depth]."""
    chunks = []
    for start in range(0, len(paths), _ROWS_AT_ONCE):
        chunk = paths[start : start + _ROWS_AT_ONCE]
        rows = np.concatenate([np.tile(prompt, (len(chunk), 1)), chunk], axis=1)
        logits = model(torch.from_numpy(rows), use_cache=False, logits_to_keep=1).logits[:, -1]
        chunks.append(logits.double().log_softmax(-1).numpy())
    return np.concatenate(chunks)


def _rows_in(rows: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows stand among the wanted ones: bool [rows]."""
    kept = {tuple(row) for row in wanted.tolist()}
    return np.array([tuple(row) in kept for row in rows.tolist()])
