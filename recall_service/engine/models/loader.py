"""A Hugging Face checkpoint directory -> a Decoder. Matrices that read the same input are joined once, here."""

from pathlib import Path

import torch
from torch import Tensor

from recall_service.engine.memory import free_bytes, refuse_too_many_weights
from recall_service.engine.models.checkpoint import Checkpoint
from recall_service.engine.models.config import DecoderConfig, read_config
from recall_service.engine.models.decoder import Decoder, DecoderWeights, LayerWeights
from recall_service.engine.models.linear import Linear
from recall_service.engine.models.operations import Operations, TorchOperations
from recall_service.errors import CheckpointError

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
DTYPE_NAMES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_decoder(directory: Path, dtype: str = "auto", device: str = "cpu", *, pack_weights: bool = True) -> Decoder:
    """Read config.json and the safetensors beside it.

    dtype: float32, bfloat16, or auto for the dtype the checkpoint was saved in. pack_weights: see `Linear`.
    generation_config.json is never read: sampling defaults have no say in a beam search.
    Raises CheckpointError naming the file, the value and the remedy; also when the GPU has no room for the weights.
    """
    config = read_config(directory)
    checkpoint = Checkpoint(directory)
    resolved = _resolve_dtype(dtype, config, checkpoint)
    if torch.device(device).type == "cuda":
        refuse_too_many_weights(directory, checkpoint.num_values * resolved.itemsize, free_bytes(torch.device(device)))
    reader = _Reader(checkpoint, config, resolved, device, pack=pack_weights)
    weights = reader.weights()
    reader.refuse_unread()
    return Decoder(config, weights, operations=operations_for(weights.embedding.device))


def operations_for(device: torch.device) -> Operations:
    """What a decoder on that device is built with."""
    if device.type != "cuda":
        return TorchOperations()
    from recall_service.engine.kernels.operations import TritonOperations  # triton is of no use where no GPU is

    return TritonOperations()


def _resolve_dtype(dtype: str, config: DecoderConfig, checkpoint: Checkpoint) -> torch.dtype:
    if dtype != "auto":
        if dtype not in DTYPE_NAMES:
            raise CheckpointError(f"dtype: {dtype!r}; supported are auto, {', '.join(DTYPE_NAMES)}")
        return DTYPE_NAMES[dtype]
    if config.dtype_name is None:
        return checkpoint.stored_dtype(EMBEDDING)
    if config.dtype_name not in DTYPE_NAMES:
        raise CheckpointError(
            f"{checkpoint.directory / 'config.json'}: dtype is {config.dtype_name!r}; "
            f"supported are {', '.join(DTYPE_NAMES)}: convert the checkpoint, or set one in the bundle"
        )
    return DTYPE_NAMES[config.dtype_name]


class _Reader:
    """Reads every tensor the config asks for, once, and remembers which ones."""

    def __init__(
        self, checkpoint: Checkpoint, config: DecoderConfig, dtype: torch.dtype, device: str, *, pack: bool
    ) -> None:
        self._checkpoint, self._config, self._dtype, self._device = checkpoint, config, dtype, device
        self._pack = pack
        self._read: set[str] = set()

    def weights(self) -> DecoderWeights:
        config = self._config
        embedding = self._tensor(EMBEDDING, config.vocab_size, config.hidden_size)
        return DecoderWeights(
            embedding=embedding,
            layers=tuple(self._layer(f"model.layers.{index}") for index in range(config.num_layers)),
            final_norm=self._tensor("model.norm.weight", config.hidden_size),
            head=embedding if config.tied_head else self._tensor(HEAD, config.vocab_size, config.hidden_size),
        )

    def _layer(self, prefix: str) -> LayerWeights:
        config = self._config
        query_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        qkv = [
            (f"{prefix}.self_attn.{name}_proj", size)
            for name, size in zip("qkv", (query_size, kv_size, kv_size), strict=True)
        ]
        out = [(f"{prefix}.self_attn.o_proj", config.hidden_size)]
        gate_up = [(f"{prefix}.mlp.{name}_proj", config.mlp_size) for name in ("gate", "up")]
        down = [(f"{prefix}.mlp.down_proj", config.hidden_size)]
        return LayerWeights(
            attention_norm=self._tensor(f"{prefix}.input_layernorm.weight", config.hidden_size),
            qkv=self._linear(qkv, config.hidden_size, bias=config.qkv_bias),
            head_norm=self._head_norm(f"{prefix}.self_attn") if config.qk_norm else None,
            out=self._linear(out, query_size, bias=config.out_bias),
            mlp_norm=self._tensor(f"{prefix}.post_attention_layernorm.weight", config.hidden_size),
            gate_up=self._linear(gate_up, config.hidden_size, bias=config.mlp_bias),
            down=self._linear(down, config.mlp_size, bias=config.mlp_bias),
        )

    def _head_norm(self, prefix: str) -> Tensor:
        """The norm of every query head, then of every key head."""
        config = self._config
        query_norm = self._tensor(f"{prefix}.q_norm.weight", config.head_dim)
        key_norm = self._tensor(f"{prefix}.k_norm.weight", config.head_dim)
        return torch.cat([query_norm.expand(config.num_heads, -1), key_norm.expand(config.num_kv_heads, -1)])

    def _linear(self, parts: list[tuple[str, int]], input_size: int, *, bias: bool) -> Linear:
        """Several linear layers of one input as one product, [sum of outputs, input]."""
        weight = torch.cat([self._tensor(f"{name}.weight", size, input_size) for name, size in parts])
        biases = torch.cat([self._tensor(f"{name}.bias", size) for name, size in parts]) if bias else None
        return Linear(weight, biases, pack=self._pack)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        self._read.add(name)
        return self._checkpoint.read(name, shape, self._dtype).to(self._device)

    def refuse_unread(self) -> None:
        """A tensor that nothing asked for means that the config describes another model than the file holds."""
        unread = {name for name in self._checkpoint.names if not name.endswith("rotary_emb.inv_freq")} - self._read
        if self._config.tied_head:
            unread.discard(HEAD)  # some writers store the tied matrix twice
        if unread:
            raise CheckpointError(
                f"{self._checkpoint.directory}: tensor {min(unread)} and {len(unread) - 1} others are not of a plain "
                f"{self._config.family} decoder; merge adapters, or save the base model"
            )
