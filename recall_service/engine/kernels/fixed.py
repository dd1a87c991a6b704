"""What steps of fixed shapes run on: the kernels together, and the references together."""

from recall_service.engine.fixed_steps import FixedKernels
from recall_service.engine.kernels.beam_attention import HEAD_SIZES, beam_attention, beam_attention_reference
from recall_service.engine.kernels.selection import REFERENCE_SELECTION, TRITON_SELECTION

TRITON_KERNELS = FixedKernels(beam_attention, TRITON_SELECTION)
REFERENCE_KERNELS = FixedKernels(beam_attention_reference, REFERENCE_SELECTION)


def kernels_for(head_dim: int) -> FixedKernels | None:
    """Triton's kernels, if they take heads of that size."""
    return TRITON_KERNELS if head_dim in HEAD_SIZES else None
