"""A request under way: what it owns."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.prefix_cache import PromptPages
from recall_service.engine.request import BeamRequest, BeamResult, StepTimes
from recall_service.engine.search import Forwarded, Search


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
    step_started: float = 0.0
    step_forwarded: float = 0.0
    step_times: list[StepTimes] = field(default_factory=list)
    rows_forwarded: int = 0
    is_published: bool = False  # whether other prompts may find its pages

    @property
    def num_rows(self) -> int:
        """Rows to forward next."""
        return sum(map(len, self.groups))

    def note_step(self, groups: Sequence[Forwarded], selection_started: float, now: float) -> None:
        """The rows of `groups` were forwarded, and what is below them is selected: seconds of time.monotonic()."""
        self.step_times.append(
            StepTimes(
                depth=max(group.rows.depth for group in groups),
                rows=sum(len(group.rows) for group in groups),
                started=self.step_started,
                forwarded=self.step_forwarded,
                ended=now,
                select_seconds=now - selection_started,
            )
        )

    def result(self, now: float) -> BeamResult:
        """What the search found, as arrays. now: seconds of time.monotonic().

        Raises ModelOutputError when the logits were not numbers.
        """
        paths, bound, proven_count, rows_skipped, rows_absent = self.search.found()
        request, scores = self.request, paths.scores.cpu().numpy()
        lengths = paths.lengths.cpu().numpy()
        longest = int(lengths.max()) if len(lengths) else request.path_len  # it may run dry before its last level
        tokens, log_probs, ranks = (
            part[:, :longest].cpu().numpy().reshape(-1, longest)
            for part in (paths.tokens, paths.log_probs, paths.ranks)
        )
        return BeamResult(
            tokens=tokens,
            lengths=lengths,
            scores=scores,
            log_probs=log_probs,
            ranks=ranks if request.with_ranks else None,
            leaves=paths.nodes.cpu().numpy() if request.constraint is not None else None,
            bound=bound,
            proven_count=proven_count,
            rows_forwarded=self.rows_forwarded - rows_absent,
            rows_skipped=rows_skipped,
            cached_prompt_tokens=self.context.num_cached_tokens,
            queue_seconds=self.admitted - self.submitted,
            prefill_seconds=self.prefilled - self.admitted,
            decode_seconds=now - self.prefilled,
            submitted=self.submitted,
            steps=tuple(self.step_times),
        )
