"""What the requests of a step fail with when it raises."""

from contextlib import suppress

import torch

from recall_service.engine.memory import is_out_of_memory
from recall_service.engine.step_recorder import CAPTURING
from recall_service.errors import EngineFailure, Overloaded, RecallError


def failure_of(stage: str, error: Exception) -> RecallError:
    """Names the kind of error and no more: its text may hold addresses and paths, which go to logs by the cause."""
    if is_out_of_memory(error):
        with CAPTURING, suppress(RuntimeError):
            torch.cuda.empty_cache()
        return Overloaded(f"no memory left for the {stage} step", retry_after_seconds=1.0, limit="memory")
    failure = EngineFailure(f"the {stage} step failed: {type(error).__name__}")
    failure.__cause__ = error
    return failure
