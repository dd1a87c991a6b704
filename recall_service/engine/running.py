"""A request under way: what it owns."""

from dataclasses import dataclass

from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.prefix_cache import PromptPages
from recall_service.engine.request import BeamRequest
from recall_service.engine.search import Search


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A request under way: what it owns, and when it came so far (seconds of time.monotonic())."""

    request_id: int
    request: BeamRequest
    search: Search
    groups: list[BeamRows]  # the rows to forward next, by depth
    context: PromptPages
    places: Tensor  # context places of the prompt, int64 [prompt_len]
    submitted: float
    admitted: float
    prefilled: float = 0.0
    steps: int = 0
    rows_forwarded: int = 0

    @property
    def num_rows(self) -> int:
        """Rows to forward next."""
        return sum(map(len, self.groups))
