"""A decoder whose logits are any function of the tokens a row descends from, and which finds these in the KV.

It stores each token's id as its key and reads its own path back through the places and slots that it is handed. A slot
that was moved, shared, freed or overwritten wrongly names another path, and so gives other logits.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from recall_service.engine.attention import BeamAttention, BeamSpan, PromptAttention
from recall_service.engine.fixed_steps import FixedAttention
from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.models.rope import RopeScaling
from tests.oracles.recompute_beam import Path

PathLogits = Callable[[Path], Sequence[float]]


def path_config(vocab_size: int, max_positions: int = 4096) -> DecoderConfig:
    """One layer, one head, as little KV as there can be."""
    return DecoderConfig(
        family="qwen3",
        vocab_size=vocab_size,
        hidden_size=1,
        mlp_size=1,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=2,
        norm_eps=1e-6,
        rope=RopeScaling("default", 10_000.0),
        max_positions=max_positions,
        tied_head=True,
        qkv_bias=False,
        out_bias=False,
        mlp_bias=False,
        qk_norm=False,
        dtype_name="float32",
    )


class PathDecoder:
    """Stands in for `Decoder`. `path_logits` maps prompt + generated tokens to logits [vocab_size]."""

    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, vocab_size: int, path_logits: PathLogits, max_positions: int = 4096) -> None:
        self.config = path_config(vocab_size, max_positions)
        self.path_logits = path_logits
        self._paths: list[Path] = []

    def hidden(
        self,
        tokens: Tensor,
        positions: Tensor,
        attention: PromptAttention | BeamAttention | FixedAttention,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """float32 [n or wanted, 1]: the number of each row's path."""
        self._paths = [()] * len(tokens)
        own = tokens.float()[:, None, None].expand(-1, 1, 2)  # [n, kv_heads, head_dim]
        attention.target(0).store(own, own)
        spans = _spans(attention) if isinstance(attention, FixedAttention) else attention.spans
        for span in spans:
            rows = range(len(tokens))[span.rows]
            if isinstance(attention, PromptAttention):
                prompt = _token_ids(attention.context.read(0, span.places)[0])
                paths = [prompt[: index + 1] for index in range(span.prefix_len, len(prompt))]
            else:
                prompt = _token_ids(attention.context.read(0, span.places)[0])
                paths = [prompt + _token_ids(keys) for keys in attention.slots.read(0, span.ancestors)[0]]
            for row, path in zip(rows, paths, strict=True):
                assert int(positions[row]) == len(path) - 1
                self._paths[row] = path
        numbers = torch.arange(len(tokens), dtype=torch.float32)[:, None]
        return numbers if wanted is None else numbers[wanted]

    def logits(self, hidden: Tensor, first_token: int = 0, end_token: int | None = None) -> Tensor:
        """float32 [n, tokens], of a range of the vocabulary."""
        paths = [self._paths[int(row)] for row in hidden[:, 0]]
        logits = torch.from_numpy(np.array([self.path_logits(path) for path in paths], np.float32))
        return logits[:, first_token:end_token]


def _spans(attention: FixedAttention) -> list[BeamSpan]:
    """The requests that are no padding, as the other attention names them."""
    width = len(attention.ancestors) // len(attention.context_lens)
    first = attention.page_table[:, :, None].long() * attention.page_len
    places = (first + torch.arange(attention.page_len)).flatten(1)
    spans = []
    for index, length in enumerate(attention.context_lens.tolist()):
        rows = slice(index * width, (index + 1) * width)
        if length:
            spans.append(BeamSpan(rows, places[index, :length], attention.ancestors[rows]))
    return spans


def _token_ids(keys: Tensor) -> Path:
    """Keys [n, 1, 2] back to the ids they were made of; a place that was never written raises here."""
    return tuple(int(key) for key in keys[:, 0, 0])


def random_path_logits(vocab_size: int, seed: int = 0) -> PathLogits:
    """Random logits that depend on every token of the path."""

    def path_logits(path: Path) -> Sequence[float]:
        return np.random.default_rng((seed, *path)).normal(0.0, 2.0, vocab_size).astype(np.float32).tolist()

    return path_logits


def integer_path_logits(vocab_size: int, dominant: int, levels: int, seed: int = 0) -> PathLogits:
    """Log-probabilities that are exact integers in fp32 and fp64, so that scores tie often and exactly.

    The dominant token has logit 0 and all others at most -40, so that the normaliser is exactly 0.
    """

    def path_logits(path: Path) -> Sequence[float]:
        logits = -40.0 - np.random.default_rng((seed, *path)).integers(0, levels, vocab_size)
        logits[dominant] = 0.0
        return logits.tolist()

    return path_logits
