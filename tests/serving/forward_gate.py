"""A model whose forwards wait until a test lets them pass."""

import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor

from tests.rpc.fake_backend import until


class ForwardGate:
    """Stands before the model's forward: `open` lets one pass, `lift` lets all pass from then on."""

    def __init__(self, forward: Callable[..., Tensor]) -> None:
        self._forward = forward
        self._passes = threading.Semaphore(0)
        self._lifted = False
        self.num_arrived = 0

    def __call__(self, *arguments: Any) -> Tensor:
        self.num_arrived += 1
        if not self._lifted:
            assert self._passes.acquire(timeout=10)
        return self._forward(*arguments)

    def open(self) -> None:
        self._passes.release()

    def lift(self) -> None:
        self._lifted = True
        self._passes.release(10)

    async def arrival(self, number: int) -> None:
        """Wait until the engine stands before its `number`-th forward."""
        await until(lambda: self.num_arrived >= number)
