"""The floor under a beam search: its matrix products alone, in the same shapes and dtype, by the fastest way known.

Counted: every linear layer of every forwarded row, the last layer of a prompt for its last token alone, the head for
the rows that need logits, and attention to the prompt. A row's attention to the few tokens it generated itself is left
out, so the floor is a little too low rather than too high. Nothing elementwise is counted, and no selection.

Every layer has weights of its own, so that they come from memory as they do in a search, not from a cache. This module
knows the shape of a decoder and which rows were forwarded; it knows no engine.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from recall_service.engine.models.config import DecoderConfig

CAUSAL_ATTENTION, CONTEXT_ATTENTION, HEAD = "causal_attention", "context_attention", "head"


class Product(NamedTuple):
    """One matrix product of so many rows, in each of `layers` layers. stage: prefill or decode."""

    stage: str
    matrix: str
    rows: int
    layers: int


class Timed(NamedTuple):
    """What one product costs: how often it runs, and the median seconds of each way to run it once."""

    product: Product
    times: int
    seconds_by_way: dict[str, float]

    @property
    def seconds(self) -> float:
        """All its runs by the fastest way."""
        return self.times * min(self.seconds_by_way.values())

    @property
    def part(self) -> str:
        """Which part of the floor it belongs to: stage and kind of work."""
        kind = {CAUSAL_ATTENTION: "attention", CONTEXT_ATTENTION: "attention", HEAD: "head"}
        return f"{self.product.stage}_{kind.get(self.product.matrix, 'linear')}"


def products_of(num_layers: int, prompt_len: int, decode_rows: Sequence[int]) -> Counter[Product]:
    """Every product of one search, with how often it runs. decode_rows: rows of each forward after the prompt's."""
    matrices = ("out", "gate_up", "down")
    products = [Product("prefill", "qkv", prompt_len, num_layers)]
    products += [Product("prefill", name, prompt_len, num_layers - 1) for name in (*matrices, CAUSAL_ATTENTION)]
    products += [Product("prefill", name, 1, 1) for name in (*matrices, CONTEXT_ATTENTION, HEAD)]
    for rows in decode_rows:
        products += [Product("decode", name, rows, num_layers) for name in ("qkv", *matrices, CONTEXT_ATTENTION)]
        products.append(Product("decode", HEAD, rows, 1))
    return Counter(product for product in products if product.layers)


class FloorWeights:
    """Random matrices [outputs, inputs], one a layer, and one head: shared by the floors of all shapes."""

    def __init__(self, config: DecoderConfig, dtype: torch.dtype) -> None:
        self.config, self.dtype = config, dtype
        attention_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        shapes = {
            "qkv": (attention_size + 2 * kv_size, config.hidden_size),
            "out": (config.hidden_size, attention_size),
            "gate_up": (2 * config.mlp_size, config.hidden_size),
            "down": (config.hidden_size, config.mlp_size),
        }
        self.matrices = {name: _copies(torch.randn(shape), config.num_layers, dtype) for name, shape in shapes.items()}
        self.matrices[HEAD] = _copies(torch.randn(config.vocab_size, config.hidden_size), 1, dtype)


class Floor:
    """Times the products of one search, again and again, each by every way there is."""

    def __init__(self, weights: FloorWeights, prompt_len: int, decode_rows: Sequence[int]) -> None:
        config, dtype = weights.config, weights.dtype
        self._weights = weights
        context = torch.randn(config.num_kv_heads, prompt_len, config.head_dim)
        self._keys = _copies(context, config.num_layers, dtype)
        self._values = _copies(context, config.num_layers, dtype)
        self._keys_by_dim = [keys.transpose(1, 2).contiguous() for keys in self._keys]
        self._times = products_of(config.num_layers, prompt_len, decode_rows)
        self._ways = {product: self._ways_of(product) for product in self._times}
        self._samples: dict[tuple[Product, str], list[float]] = {}

    @torch.inference_mode()
    def run(self, *, warm_up: bool = False) -> None:
        """Every product once by every way; a warm-up leaves no samples."""
        for product, ways in self._ways.items():
            for way, multiply in ways.items():
                start = time.perf_counter()
                for layer in range(product.layers):
                    multiply(layer)
                if not warm_up:
                    self._samples.setdefault((product, way), []).append(time.perf_counter() - start)

    def timed(self) -> list[Timed]:
        """Medians of all runs so far."""
        return [
            Timed(product, times, {way: statistics.median(self._samples[product, way]) for way in self._ways[product]})
            for product, times in self._times.items()
        ]

    def _ways_of(self, product: Product) -> dict[str, Callable[[int], Tensor]]:
        if product.matrix == CAUSAL_ATTENTION:
            return self._causal_attention(product.rows)
        if product.matrix == CONTEXT_ATTENTION:
            return self._context_attention(product.rows)
        return self._linear(product)

    def _linear(self, product: Product) -> dict[str, Callable[[int], Tensor]]:
        """Plain, and with weights in the blocked layout that oneDNN chooses for so many rows."""
        matrices = self._weights.matrices[product.matrix][: product.layers]
        inputs = torch.randn(product.rows, matrices[0].shape[1]).to(self._weights.dtype)
        ways: dict[str, Callable[[int], Tensor]] = {"plain": lambda layer: functional.linear(inputs, matrices[layer])}
        if _can_pack(self._weights.dtype):
            packed = [torch.ops.mkldnn._reorder_linear_weight(matrix, product.rows) for matrix in matrices]
            multiply = torch.ops.mkldnn._linear_pointwise
            ways["packed"] = lambda layer: multiply(inputs, packed[layer], None, "none", [], "")
        return ways

    def _causal_attention(self, rows: int) -> dict[str, Callable[[int], Tensor]]:
        config = self._weights.config
        queries = torch.randn(1, config.num_heads, rows, config.head_dim).to(self._weights.dtype)

        def fused(layer: int) -> Tensor:
            keys, values = self._keys[layer][None], self._values[layer][None]
            return functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)

        return {"fused": fused} | self._context_attention(rows)

    def _context_attention(self, rows: int) -> dict[str, Callable[[int], Tensor]]:
        """All rows and heads of a KV head as one matrix: over keys as they lie, over transposed keys, or fused."""
        config = self._weights.config
        group = config.num_heads // config.num_kv_heads
        queries = torch.randn(config.num_kv_heads, rows * group, config.head_dim).to(self._weights.dtype)

        def as_stored(layer: int) -> Tensor:
            return (queries @ self._keys[layer].transpose(1, 2)) @ self._values[layer]

        def transposed(layer: int) -> Tensor:
            return (queries @ self._keys_by_dim[layer]) @ self._values[layer]

        def fused_rows(layer: int) -> Tensor:
            keys, values = self._keys[layer][None], self._values[layer][None]
            return functional.scaled_dot_product_attention(queries[None], keys, values)

        return {"as_stored": as_stored, "transposed": transposed, "fused_rows": fused_rows}


def parts_of(timed: Sequence[Timed]) -> dict[str, float]:
    """Seconds of each part of the floor; they add up to the floor."""
    parts: dict[str, float] = {}
    for entry in timed:
        parts[entry.part] = parts.get(entry.part, 0.0) + entry.seconds
    return parts


def _copies(matrix: Tensor, count: int, dtype: torch.dtype) -> list[Tensor]:
    """The same numbers `count` times, in memory of their own."""
    return [matrix.to(dtype, copy=True) for _ in range(count)]


def _can_pack(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
