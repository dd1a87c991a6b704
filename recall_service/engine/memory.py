"""Whether a GPU has room for what an engine allocates at start, said before it is tried."""

from pathlib import Path

import torch

from recall_service.engine.kv_cache import page_bytes
from recall_service.engine.models.config import DecoderConfig
from recall_service.engine.scheduler import EngineLimits
from recall_service.errors import CheckpointError, SettingsError

_GIB = 1 << 30


def is_out_of_memory(error: Exception) -> bool:
    """Whether an operation failed for want of memory. CUDA says so in words alone."""
    words = ("out of memory", "ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def free_bytes(device: torch.device) -> int:
    """What is free on a GPU now, with what torch holds and does not use."""
    on_device: int = torch.cuda.mem_get_info(device)[0]
    return on_device + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def memory_states(device: torch.device) -> dict[str, float]:
    """All bytes of a GPU by what they are now, for whoever draws it; any thread may ask.

    used: by tensors. kept: by torch, for the next tensors. other: of libraries, contexts and other processes. free.
    """
    free, total = torch.cuda.mem_get_info(device)
    used, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    return {"used": used, "kept": reserved - used, "other": max(0, total - free - reserved), "free": free}


def refuse_too_many_weights(source: Path, num_bytes: int, num_free: int) -> None:
    """Raises CheckpointError with the sizes when weights take more than `num_free` bytes."""
    if num_bytes > num_free:
        raise CheckpointError(
            f"{source}: its weights take {num_bytes / _GIB:.2f} GiB, the GPU has {num_free / _GIB:.2f} GiB free; load "
            "them as bfloat16, stop what else runs there, or take a larger GPU"
        )


def refuse_what_does_not_fit(
    config: DecoderConfig, limits: EngineLimits, num_pages: int, dtype: torch.dtype, num_free: int
) -> None:
    """Raises SettingsError with the sizes when pools and the widest step take more than `num_free` bytes.

    A step's own memory is estimated from its largest parts: the logits of all rows, in the model's dtype and once more
    in fp32 where they are reduced, and the activations of one layer of a whole prompt or of all rows.
    """
    token_bytes = page_bytes(config, 1, dtype)
    pages = num_pages * limits.page_len * token_bytes
    slots = (limits.num_slots + 1) * token_bytes
    attention_size = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    activation = (6 * config.hidden_size + 2 * attention_size + 3 * config.mlp_size) * dtype.itemsize
    logits = limits.max_rows * config.vocab_size * (dtype.itemsize + torch.float32.itemsize)
    step = logits + max(limits.max_rows, limits.max_prompt_tokens) * activation
    if pages + slots + step > num_free:
        sizes = ", ".join(
            f"{name} {size / _GIB:.2f}" for name, size in (("pages", pages), ("slots", slots), ("a step", step))
        )
        raise SettingsError(
            f"engine limits: the GPU has {num_free / _GIB:.2f} GiB free beside the weights; needed are {sizes} GiB: "
            "lower max_rows, max_steps or max_slots, context_pages or prefix_cache_bytes, or take a larger GPU"
        )
