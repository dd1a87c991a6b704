"""Which operations make the host wait for a device: those that hand it a value, or a shape that depends on one."""

from typing import Any

import torch

_WAITING = {
    "_local_scalar_dense",
    "item",  # as inference mode calls it
    "nonzero",
    "masked_select",
    "repeat_interleave",
    "unique",
    "is_nonzero",
    "equal",
    "resolve_neg",  # of tolist and numpy
}


def makes_the_host_wait(func: Any, args: Any) -> bool:
    """Of an operation as a TorchDispatchMode is told of it: on a CPU, too, where nobody would notice."""
    name = func.overloadpacket.__name__
    if name in ("index", "index_put_"):
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    return name in _WAITING
