"""The decoder's operations as Triton kernels: one launch each, and no host in between."""

from torch import Tensor

from recall_service.engine.kernels.gate import gate
from recall_service.engine.kernels.rms_norm import add_norm, norm
from recall_service.engine.kernels.turn_and_store import turn_and_store
from recall_service.engine.kv_cache import KvTarget
from recall_service.engine.models.operations import Heads


class TritonOperations:
    """`models.operations.Operations` for a GPU. Every tensor is contiguous, as matrix products leave them."""

    def norm(self, states: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `rms_norm.norm`."""
        return norm(states, weight, eps)

    def add_norm(self, states: Tensor, update: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """See `rms_norm.add_norm`."""
        return add_norm(states, update, weight, eps)

    def turn_and_store(
        self,
        heads: Tensor,
        head_norm: Tensor | None,
        eps: float,
        cosines: Tensor,
        sines: Tensor,
        num_heads: int,
        target: KvTarget,
    ) -> Heads:
        """See `turn_and_store.turn_and_store`."""
        return turn_and_store(heads, head_norm, eps, cosines, sines, num_heads, target)

    def gate(self, gate_up: Tensor) -> Tensor:
        """See `gate.gate`."""
        return gate(gate_up)
