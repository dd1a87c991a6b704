"""What selection at fixed shapes is made of: the kernels, and the references that equal the CPU's path bit by bit."""

from recall_service.engine.fixed_selection import SelectionKernels
from recall_service.engine.kernels.candidate_chunks import (
    candidate_chunks,
    candidate_chunks_reference,
    expand_chunks,
    expand_chunks_reference,
)
from recall_service.engine.kernels.ranks import (
    child_ranks,
    child_ranks_reference,
    token_ranks,
    token_ranks_reference,
)
from recall_service.engine.kernels.row_statistics import (
    row_normaliser,
    row_normaliser_reference,
    row_statistics,
    row_statistics_reference,
)

TRITON_SELECTION = SelectionKernels(
    row_normaliser=row_normaliser,
    row_statistics=row_statistics,
    candidate_chunks=candidate_chunks,
    expand_chunks=expand_chunks,
    token_ranks=token_ranks,
    child_ranks=child_ranks,
)
REFERENCE_SELECTION = SelectionKernels(
    row_normaliser=row_normaliser_reference,
    row_statistics=row_statistics_reference,
    candidate_chunks=candidate_chunks_reference,
    expand_chunks=expand_chunks_reference,
    token_ranks=token_ranks_reference,
    child_ranks=child_ranks_reference,
)
