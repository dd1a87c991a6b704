"""The tensors of a Hugging Face checkpoint directory: one safetensors file or shards. Nothing pickled is ever read."""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from recall_service.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


class Checkpoint:
    """Where each tensor lies, with its stored shape and dtype; tensors are read when asked for.

    Raises CheckpointError when there are only pickled weights, a shard is missing, truncated or outside the
    directory, or a tensor is stored in a dtype other than fp32 and bf16.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._file_of: dict[str, Path] = {}
        for path in self._files():
            for name in self._names(path):
                self._file_of[name] = path
        if not self._file_of:
            raise CheckpointError(f"{directory / SINGLE_FILE}: holds no tensors; save the checkpoint again")

    @property
    def names(self) -> Iterable[str]:
        """Every tensor's name."""
        return self._file_of.keys()

    def read(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """One tensor of exactly `shape`, converted to `dtype`. Raises CheckpointError when it is missing or differs."""
        if name not in self._file_of:
            raise CheckpointError(f"{self.directory}: tensor {name} is missing; save the whole model again")
        path = self._file_of[name]
        with safe_open(path, framework="pt") as file:
            stored = file.get_slice(name)
            if tuple(stored.get_shape()) != shape:
                raise CheckpointError(
                    f"{path}: tensor {name} has shape {tuple(stored.get_shape())}, config.json asks for {shape}; "
                    "the two are not of one model"
                )
            if stored.get_dtype() not in DTYPES:
                raise CheckpointError(
                    f"{path}: tensor {name} is stored as {stored.get_dtype()}; convert the checkpoint to F32 or BF16"
                )
            tensor: Tensor = file.get_tensor(name)
            return tensor.to(dtype)

    @property
    def num_values(self) -> int:
        """How many numbers all tensors hold."""
        return sum(math.prod(shape) for path in set(self._file_of.values()) for shape in _shapes(path))

    def stored_dtype(self, name: str) -> torch.dtype:
        """The dtype in which a tensor is stored."""
        if name not in self._file_of:
            raise CheckpointError(f"{self.directory}: tensor {name} is missing; save the whole model again")
        with safe_open(self._file_of[name], framework="pt") as file:
            stored = file.get_slice(name).get_dtype()
        return DTYPES.get(stored, torch.float32)

    def _files(self) -> list[Path]:
        index = self.directory / INDEX_FILE
        single = self.directory / SINGLE_FILE
        if single.is_file():
            return [single]
        if not index.is_file():
            pickled = sorted(p.name for p in self.directory.glob("*.bin")) + sorted(
                p.name for p in self.directory.glob("*.pt*")
            )
            found = f"only pickled weights ({', '.join(pickled)}), which are never read" if pickled else "no weights"
            raise CheckpointError(f"{self.directory}: {found}; save it with save_pretrained")
        try:
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            shards = sorted({str(shard) for shard in weight_map.values()})
        except (OSError, ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(
                f"{index}: no readable weight_map ({error}); restore it from the checkpoint"
            ) from None
        return [self._shard(index, shard) for shard in shards]

    def _shard(self, index: Path, name: str) -> Path:
        path = self.directory / name
        if Path(name).name != name or path.suffix != ".safetensors":
            raise CheckpointError(f"{index}: shard {name!r} is no safetensors file of this directory; refused")
        if not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            raise CheckpointError(f"{path}: this shard is missing; fetch the whole checkpoint")
        return path

    def _names(self, path: Path) -> list[str]:
        try:
            with safe_open(path, framework="pt") as file:
                return list(file.keys())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: truncated or no safetensors file ({error}); fetch it again") from None


def _shapes(path: Path) -> list[list[int]]:
    with safe_open(path, framework="pt") as file:
        return [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118  no mapping: keys() it is
