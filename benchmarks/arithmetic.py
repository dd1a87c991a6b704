"""How much a forward must compute and move, from shapes alone: what times are held against.

Floating-point operations count a product and a sum as two. Bytes are the least that memory must carry: every weight
once, the context's keys and values once for all beams of a request, what a row generated once, logits written once and
read once. Activations are left out, for they may stay in the cache; so no figure made from these is too high.
"""

from typing import NamedTuple

from recall_service.engine.models.config import DecoderConfig


class Arithmetic(NamedTuple):
    """Floating-point operations and bytes of one forward."""

    operations: int
    bytes: int


def prefill_arithmetic(config: DecoderConfig, context: int, batch: int, itemsize: int) -> Arithmetic:
    """Prompts of `context` tokens; after its keys and values the last layer runs for the last token of each alone."""
    query_size = config.num_heads * config.head_dim
    causal = 4 * query_size * context * (context + 1) // 2
    whole_layer = 2 * context * _layer_weights(config) + causal
    last_layer = 2 * context * _qkv_weights(config) + 2 * (_layer_weights(config) - _qkv_weights(config))
    last_layer += 4 * query_size * context
    operations = (config.num_layers - 1) * whole_layer + last_layer + 2 * _head_weights(config)
    moved = _weights(config) + batch * (context * _kv_size(config) + 2 * config.vocab_size)
    return Arithmetic(batch * operations, itemsize * moved)


def decode_arithmetic(
    config: DecoderConfig, context: int, width: int, batch: int, depth: int, itemsize: int
) -> Arithmetic:
    """The rows of `batch` requests, each with `depth` tokens of its own, the last of which is being forwarded."""
    rows = batch * width
    per_row = 2 * _weights(config) + 4 * config.num_layers * config.num_heads * config.head_dim * (context + depth)
    moved = _weights(config) + (batch * context + rows * depth) * _kv_size(config) + 2 * rows * config.vocab_size
    return Arithmetic(rows * per_row, itemsize * moved)


def _qkv_weights(config: DecoderConfig) -> int:
    return config.hidden_size * (config.num_heads + 2 * config.num_kv_heads) * config.head_dim


def _layer_weights(config: DecoderConfig) -> int:
    out = config.hidden_size * config.num_heads * config.head_dim
    return _qkv_weights(config) + out + 3 * config.hidden_size * config.mlp_size


def _head_weights(config: DecoderConfig) -> int:
    return config.vocab_size * config.hidden_size


def _weights(config: DecoderConfig) -> int:
    """Of all layers and the head, in numbers; the embedding is read in a few rows."""
    return config.num_layers * _layer_weights(config) + _head_weights(config)


def _kv_size(config: DecoderConfig) -> int:
    """Keys and values of one token in all layers, in numbers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_dim
