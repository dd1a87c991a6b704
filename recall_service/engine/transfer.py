"""Between host and device without either waiting for the other."""

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def to_device(values: NDArray[Any] | Sequence[int] | Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Host values as a tensor on the device. The copy to a GPU is queued behind what runs there, from pinned memory."""
    on_host = torch.as_tensor(values, dtype=dtype)
    if device.type != "cuda":
        return on_host.to(device)
    return on_host.pin_memory().to(device, non_blocking=True)


class Landing:
    """Tensors on their way to the host. On a CPU they are there at once."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._event: torch.cuda.Event | None = None
        if not tensors[0].is_cuda:
            self._tensors = list(tensors)
            return
        self._tensors = [torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in tensors]
        for on_host, tensor in zip(self._tensors, tensors, strict=True):
            on_host.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def has_landed(self, *, wait: bool) -> bool:
        """Whether everything has arrived; with `wait`, only once it has."""
        if self._event is None:
            return True
        if wait:
            self._event.synchronize()
        return bool(self._event.query())

    @property
    def tensors(self) -> list[Tensor]:
        """On the host, in the order given; only after they have landed."""
        return self._tensors
