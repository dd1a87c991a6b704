"""What a GPU is timed and checked on: a decoder of random weights made where it runs, and a random catalogue.

Nothing is read from or written to disk. Everything follows from fixed seeds. Knows the engine, but neither times nor
checks it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from item_catalog.sid import SidLayout
from item_catalog.trie import PrefixTrie
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.engine import BeamEngine
from recall_service.engine.fixed_steps import FixedKernels
from recall_service.engine.generation import Generation
from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.models.decoder import Decoder, DecoderWeights, LayerWeights
from recall_service.engine.models.linear import Linear
from recall_service.engine.models.loader import operations_for
from recall_service.engine.models.rope import RopeScaling
from recall_service.engine.request import BeamRequest
from recall_service.engine.scheduler import EngineLimits

NEW_TOKENS = 3
FREE, CONSTRAINED = "free", "constrained"
MODES = (CONSTRAINED, FREE)
_LOGIT_SPREAD = 3.0  # as trained models have: near ties are rare, and no token takes everything

QWEN3_1700M = DecoderConfig(
    family="qwen3",
    vocab_size=151_936,
    hidden_size=2048,
    mlp_size=6144,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    norm_eps=1e-6,
    rope=RopeScaling("default", theta=1_000_000.0),
    max_positions=8192,
    tied_head=True,
    qkv_bias=False,
    out_bias=False,
    mlp_bias=False,
    qk_norm=True,
    dtype_name="bfloat16",
)


class Cell(NamedTuple):
    """Searches that run together. context: prompt tokens of each; width: beams of each; batch: how many."""

    context: int
    width: int
    batch: int


@dataclass(frozen=True, slots=True, eq=False)
class GpuWorkload:
    """What every cell shares. constraint: the trie on the decoder's device. kernels: those for that device."""

    decoder: Decoder
    weights: DecoderWeights
    trie: PrefixTrie
    constraint: TrieConstraint
    kernels: FixedKernels

    @classmethod
    def random(
        cls, config: DecoderConfig, codebook_size: int, num_items: int, dtype: torch.dtype, device: torch.device
    ) -> "GpuWorkload":
        """Made on the device it is for."""
        weights = random_weights(config, dtype, device)
        trie = random_trie(codebook_size, num_items)
        constraint = TrieConstraint(trie, level_tokens(codebook_size, config.vocab_size), device)
        return cls(decoder_of(config, weights), weights, trie, constraint, kernels_for(device))

    def engine_for(self, cell: Cell) -> BeamEngine:
        """An engine with room for the searches of a cell, and no more."""
        limits = EngineLimits(
            max_rows=cell.width * cell.batch,
            max_steps=NEW_TOKENS,
            context_pages=cell.batch * -(-cell.context // EngineLimits().page_len),
            max_prompt_tokens=cell.context,
        )
        return BeamEngine(self.decoder, limits, fixed_kernels=self.kernels)

    def requests(self, cell: Cell, mode: str, seed: int) -> list[BeamRequest]:
        """The searches of a cell. Every seed has prompts of its own, so that nothing remembered can help."""
        vocab_size, shape = self.decoder.config.vocab_size, (cell.batch, cell.context)
        prompts = np.random.default_rng((seed, *shape)).integers(0, vocab_size, shape)
        if mode == CONSTRAINED:
            return [BeamRequest(prompt=prompt, beam_width=cell.width, constraint=self.constraint) for prompt in prompts]
        generation = Generation(max_new_tokens=NEW_TOKENS, length_penalty=0.0)
        return [BeamRequest(prompt=prompt, beam_width=cell.width, generation=generation) for prompt in prompts]


def kernels_for(device: torch.device) -> FixedKernels:
    """What steps of fixed shapes run on: on a CPU the kernels' references, for the same steps at another speed."""
    from recall_service.engine.kernels.fixed import REFERENCE_KERNELS, TRITON_KERNELS  # not before triton is known of

    return TRITON_KERNELS if device.type == "cuda" else REFERENCE_KERNELS


def decoder_of(config: DecoderConfig, weights: DecoderWeights) -> Decoder:
    """A decoder where the weights lie."""
    return Decoder(config, weights, operations=operations_for(weights.embedding.device))


def random_weights(
    config: DecoderConfig, dtype: torch.dtype, device: torch.device, drawn_on: torch.device | None = None
) -> DecoderWeights:
    """Weights whose products neither grow nor fade from layer to layer; norms near 1.

    drawn_on: where the numbers are drawn; the same device gives the same numbers. None: where they are to lie.
    """
    where = drawn_on or device
    generator = torch.Generator(where).manual_seed(0)

    def draw(*shape: int, centre: float = 0.0, spread: float) -> Tensor:
        drawn = torch.empty(shape, dtype=dtype, device=where)
        return drawn.normal_(centre, spread, generator=generator).to(device)

    def norm(*shape: int) -> Tensor:
        return draw(*shape, centre=1.0, spread=0.1)

    def linear(outputs: int, inputs: int) -> Linear:
        return Linear(draw(outputs, inputs, spread=inputs**-0.5), None, pack=False)

    def layer() -> LayerWeights:
        query_size, num_turned = config.num_heads * config.head_dim, config.num_heads + config.num_kv_heads
        return LayerWeights(
            attention_norm=norm(config.hidden_size),
            qkv=linear((num_turned + config.num_kv_heads) * config.head_dim, config.hidden_size),
            head_norm=torch.cat(
                [
                    norm(config.head_dim).expand(heads, -1)
                    for heads in (config.num_heads, config.num_kv_heads)  # one norm for all queries, one for all keys
                ]
            ),
            out=linear(config.hidden_size, query_size),
            mlp_norm=norm(config.hidden_size),
            gate_up=linear(2 * config.mlp_size, config.hidden_size),
            down=linear(config.hidden_size, config.mlp_size),
        )

    embedding = draw(config.vocab_size, config.hidden_size, spread=_LOGIT_SPREAD * config.hidden_size**-0.5)
    layers = tuple(layer() for _ in range(config.num_layers))
    return DecoderWeights(embedding=embedding, layers=layers, final_norm=norm(config.hidden_size), head=embedding)


def random_trie(codebook_size: int, num_items: int) -> PrefixTrie:
    """Distinct SIDs of `num_items` uniformly random ones."""
    layout = SidLayout((codebook_size,) * NEW_TOKENS)
    sids = np.random.default_rng(0).integers(0, codebook_size, (num_items, NEW_TOKENS))
    (keys,) = layout.pack(sids).T  # three levels fit one word
    return PrefixTrie.from_sorted_sids(layout, sids[np.unique(keys, return_index=True)[1]])


def level_tokens(codebook_size: int, vocab_size: int) -> list[NDArray[np.int64]]:
    """The token id of every code, int64 [codebook_size] per level: the last ranges of the vocabulary."""
    first = vocab_size - NEW_TOKENS * codebook_size
    return list(np.arange(first, vocab_size, dtype=np.int64).reshape(NEW_TOKENS, codebook_size))
