"""BeamEngine: submit requests, run steps, collect what completed.

One step takes every running request one level further: prompts that were just admitted are prefilled, the rows of all
others are forwarded together, then each request selects its own beams. Requests join and leave between steps.
The engine is synchronous and belongs to one thread; whoever drives it decides which.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from recall_service.engine.attention import BeamAttention, BeamSpan, PromptAttention, PromptSpan
from recall_service.engine.beams import NO_SLOT, BeamRows
from recall_service.engine.kv_cache import BeamSlots, ContextPages
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace
from recall_service.engine.scheduler import EngineLimits, Scheduler, Waiting, num_steps
from recall_service.engine.search import Selection, select_beams
from recall_service.errors import (
    DeadlineExpired,
    EngineFailure,
    InvalidRequest,
    RecallError,
    RequestCancelled,
    Violation,
)


class Completion(NamedTuple):
    """How a request ended: with its beams, or with an error."""

    request_id: int
    outcome: BeamResult | RecallError


class StepReport(NamedTuple):
    """One forward of a step, for whoever counts: phase is prefill or decode."""

    phase: str
    requests: int
    rows: int


@dataclass(slots=True, eq=False)
class RunningRequest:
    """What a request owns besides its rows. `span` is where these lie among all rows."""

    request_id: int
    request: BeamRequest
    pages: list[int]
    places: Tensor  # context places of the prompt, int64 [prompt_len]
    span: slice
    submitted: float
    admitted: float
    bound: Tensor  # best score ever pruned, 0-dim float32
    prefilled: float = 0.0
    depth: int = 0
    rows_forwarded: int = 0

    @property
    def num_rows(self) -> int:
        """Live beams now."""
        return int(self.span.stop - self.span.start)

    @property
    def is_complete(self) -> bool:
        """All levels done, or nowhere left to go."""
        return self.depth == num_steps(self.request) or self.num_rows == 0


@dataclass(slots=True, eq=False)
class BeamEngine:
    """Beam search over one decoder. Pools are allocated once, here, for the worst case of `limits`.

    observe_step: called with a StepReport after each forward.
    """

    model: Decoder
    limits: EngineLimits = field(default_factory=EngineLimits)
    observe_step: Callable[[StepReport], None] | None = None

    pages: ContextPages = field(init=False)
    slots: BeamSlots = field(init=False)
    _scheduler: Scheduler = field(init=False)
    _rows: BeamRows = field(init=False)
    _running: list[RunningRequest] = field(init=False, default_factory=list)
    _completed: list[Completion] = field(init=False, default_factory=list)
    _next_id: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        config, limits, where = self.model.config, self.limits, (self.model.dtype, self.model.device)
        self.pages = ContextPages(config, limits.context_pages, limits.page_len, *where)
        self.slots = BeamSlots(config, limits.num_slots, *where)
        self._scheduler = Scheduler(limits)
        self._rows = BeamRows.roots(0, limits.max_steps, self.model.device)

    @property
    def is_idle(self) -> bool:
        """Nothing runs, waits, or is yet to be collected."""
        return not (self._running or self._scheduler.num_waiting or self._completed)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return self._scheduler.num_waiting

    @property
    def num_running(self) -> int:
        """Requests that own rows."""
        return len(self._running)

    @property
    def num_rows(self) -> int:
        """Live beams of all running requests."""
        return len(self._rows)

    def submit(self, request: BeamRequest) -> int:
        """Queue a request and return its id. Raises InvalidRequest, or Overloaded when the queue is full."""
        self._check(request)
        self._next_id += 1
        self._scheduler.enqueue(Waiting(self._next_id, request, time.monotonic()))
        return self._next_id

    def cancel(self, request_id: int) -> None:
        """Stop a request wherever it is and give back what it owns. It completes with RequestCancelled."""
        error = RequestCancelled("cancelled by the caller")
        if self._scheduler.remove(request_id):
            self._completed.append(Completion(request_id, error))
        self._fail([running for running in self._running if running.request_id == request_id], error)
        self._free_orphans()

    def stage_of(self, request_id: int) -> str:
        """Where a request is: queue, prefill or decode. A snapshot that any thread may take."""
        depth = next((running.depth for running in self._running if running.request_id == request_id), None)
        return "queue" if depth is None else "prefill" if depth == 0 else "decode"

    def abort(self, error: RecallError) -> list[Completion]:
        """Fail everything that waits or runs; the engine is empty afterwards."""
        self._completed += [Completion(waiting.request_id, error) for waiting in self._scheduler.remove_all()]
        self._fail(self._running, error)
        self._free_orphans()
        completed, self._completed = self._completed, []
        return completed

    def step(self) -> list[Completion]:
        """Take every running request one level further; return whatever completed or failed since the last step."""
        with torch.inference_mode():
            self._drop_expired()
            self._admit()
            logits = self._forward()
            selections = self._select(logits)
            self._inherit(selections)
            self._finish()
            self._free_orphans()
        completed, self._completed = self._completed, []
        return completed

    def search(self, requests: Sequence[BeamRequest]) -> list[BeamResult]:
        """Submit all, step until done, results in order. Raises the first error. For tests, benchmarks and warm-up."""
        for request in requests:
            self._check(request)  # before any is queued, so that a refusal leaves nothing behind
        ids = [self.submit(request) for request in requests]
        outcomes: dict[int, BeamResult | RecallError] = {}
        while not self.is_idle:
            outcomes.update(self.step())
        results = []
        for outcome in (outcomes[request_id] for request_id in ids):
            if isinstance(outcome, RecallError):
                raise outcome
            results.append(outcome)
        return results

    def _check(self, request: BeamRequest) -> None:
        violations = [*self._scheduler.violations(request, self.pages), *self._model_violations(request)]
        if violations:
            raise InvalidRequest(violations)

    def _model_violations(self, request: BeamRequest) -> Iterator[Violation]:
        """What the model cannot do, whatever the limits."""
        config, prompt, constraint = self.model.config, request.prompt, request.constraint
        if len(prompt) and not (prompt.min() >= 0 and prompt.max() < config.vocab_size):
            yield Violation("prompt", f"holds a token id outside 0 to {config.vocab_size - 1}")
        longest = config.max_positions - num_steps(request) + 1  # the last token is never forwarded
        if len(prompt) > longest:
            yield Violation("prompt", f"{len(prompt)} tokens; the model reaches {longest}")
        if constraint is not None and constraint.max_token >= config.vocab_size:
            yield Violation("constraint", f"names token {constraint.max_token}; the model has {config.vocab_size}")
        if constraint is None and request.score_space is not ScoreSpace.VOCABULARY:
            yield Violation("score_space", f"{request.score_space.value}; a free search knows VOCABULARY alone")

    def _drop_expired(self) -> None:
        now = time.monotonic()
        self._completed += [
            Completion(waiting.request_id, DeadlineExpired("queue")) for waiting in self._scheduler.remove_expired(now)
        ]
        for running in list(self._running):
            deadline = running.request.deadline
            if deadline is not None and deadline <= now:
                self._fail([running], DeadlineExpired("prefill" if running.depth <= 1 else "decode"))

    def _admit(self) -> None:
        admitted: list[RunningRequest] = []
        while (waiting := self._scheduler.admit(self.pages)) is not None:
            prompt_len = len(waiting.request.prompt)
            pages = self.pages.allocate(prompt_len)
            row = len(self._rows) + len(admitted)
            admitted.append(
                RunningRequest(
                    request_id=waiting.request_id,
                    request=waiting.request,
                    pages=pages,
                    places=self.pages.places(pages, prompt_len),
                    span=slice(row, row + 1),
                    submitted=waiting.submitted,
                    admitted=time.monotonic(),
                    bound=torch.tensor(-torch.inf, device=self.model.device),
                )
            )
        self._running += admitted
        self._rows = self._rows.append(BeamRows.roots(len(admitted), self.limits.max_steps, self.model.device))

    def _forward(self) -> list[tuple[RunningRequest, Tensor]]:
        """Logits float32 [rows, vocab] of every running request; a group whose forward fails is failed and left out."""
        fresh = [running for running in self._running if running.depth == 0]
        deeper = [running for running in self._running if running.depth > 0]
        logits: list[tuple[RunningRequest, Tensor]] = []
        for phase, group, forward in (("decode", deeper, self._decode), ("prefill", fresh, self._prefill)):
            if not group:
                continue
            try:
                rows = forward(group)
            except Exception as error:  # noqa: BLE001  whatever a forward raises, the engine goes on
                self._fail(group, _failure(phase, error))
                continue
            counts = [running.num_rows for running in group]
            logits += zip(group, rows.split(counts), strict=True)
            for running in group:
                running.rows_forwarded += running.num_rows
                running.prefilled = running.prefilled or time.monotonic()
            if self.observe_step is not None:
                self.observe_step(StepReport(phase, len(group), len(rows)))
        return logits

    def _prefill(self, group: list[RunningRequest]) -> Tensor:
        """Run whole prompts once each, together; logits of their last tokens."""
        device = self.model.device
        lengths = [len(running.request.prompt) for running in group]
        ends = list(accumulate(lengths))
        tokens = torch.cat([torch.as_tensor(running.request.prompt, dtype=torch.int64) for running in group]).to(device)
        positions = torch.cat([torch.arange(length) for length in lengths]).to(device)
        spans = [
            PromptSpan(slice(end - length, end), running.places)
            for running, length, end in zip(group, lengths, ends, strict=True)
        ]
        hidden = self.model.hidden(tokens, positions, PromptAttention(self.pages.storage, spans))
        return self.model.logits(hidden[torch.tensor(ends, device=device) - 1])

    def _decode(self, group: list[RunningRequest]) -> Tensor:
        """Run the last token of every row, together. `group` is the head of the running list, so its rows are too."""
        num_rows = group[-1].span.stop
        rows = self._rows.first(num_rows)
        rows.slots.scatter_(1, rows.depth[:, None] - 1, self.slots.allocate(num_rows)[:, None])
        prompt_lens = torch.cat([torch.full((r.num_rows,), len(r.request.prompt)) for r in group]).to(rows.depth.device)
        spans = [BeamSpan(running.span, running.places, rows.slots[running.span, : running.depth]) for running in group]
        attention = BeamAttention(self.pages.storage, self.slots.storage, spans)
        return self.model.logits(self.model.hidden(rows.last_tokens(), prompt_lens + rows.depth - 1, attention))

    def _select(self, logits: list[tuple[RunningRequest, Tensor]]) -> list[tuple[RunningRequest, Selection]]:
        """Each request's exact top beams; a request whose logits are not numbers fails alone."""
        selections = []
        for running, request_logits in logits:
            request = running.request
            try:
                selection = select_beams(
                    request_logits,
                    self._rows.score[running.span],
                    self._rows.node[running.span],
                    level=running.depth,
                    width=request.beam_width,
                    constraint=request.constraint,
                    score_space=request.score_space,
                    with_ranks=request.with_ranks,
                )
            except EngineFailure as error:
                self._fail([running], error)
                continue
            except Exception as error:  # noqa: BLE001  out of memory, most likely: narrower beams may still fit
                self._fail([running], _failure("selection", error))
                continue
            selections.append((running, selection))
        return selections

    def _inherit(self, selections: list[tuple[RunningRequest, Selection]]) -> None:
        """Replace all rows by the selected ones: one gather for every request together."""
        if not selections:
            self._rows = BeamRows.roots(0, self.limits.max_steps, self.model.device)
            return
        starts = [running.span.start for running, _ in selections]
        parents = torch.cat([picked.parents + start for start, (_, picked) in zip(starts, selections, strict=True)])
        tokens, nodes, log_probs, ranks = (
            torch.cat([getattr(picked, name) for _, picked in selections])
            for name in ("tokens", "nodes", "log_probs", "ranks")
        )
        self._rows = self._rows.descend(parents, tokens, nodes, log_probs, ranks)
        self._running = [running for running, _ in selections]
        stop = 0
        for running, picked in selections:
            running.span = slice(stop, stop + len(picked.tokens))
            stop = running.span.stop
            running.bound = torch.maximum(running.bound, picked.best_pruned)
            running.depth += 1

    def _finish(self) -> None:
        """Complete the requests that are done."""
        done = [running for running in self._running if running.is_complete]
        self._completed += [Completion(running.request_id, self._result(running)) for running in done]
        self._drop(done)

    def _result(self, running: RunningRequest) -> BeamResult:
        now = time.monotonic()
        rows, steps = running.span, num_steps(running.request)
        scores, bound = self._rows.score[rows].cpu().numpy(), float(running.bound)
        return BeamResult(
            tokens=self._rows.tokens[rows, :steps].cpu().numpy(),
            scores=scores,
            log_probs=self._rows.log_probs[rows, :steps].cpu().numpy(),
            ranks=self._rows.ranks[rows, :steps].cpu().numpy() if running.request.with_ranks else None,
            leaves=self._rows.node[rows].cpu().numpy() if running.request.constraint is not None else None,
            bound=bound,
            proven_count=int((scores > bound).sum()),
            rows_forwarded=running.rows_forwarded,
            queue_seconds=running.admitted - running.submitted,
            prefill_seconds=running.prefilled - running.admitted,
            decode_seconds=now - running.prefilled,
        )

    def _fail(self, failed: list[RunningRequest], error: RecallError) -> None:
        self._completed += [Completion(running.request_id, error) for running in failed]
        self._drop(failed)

    def _drop(self, gone: list[RunningRequest]) -> None:
        """Take requests out with their rows; whatever they owned is free afterwards."""
        if not gone:
            return
        for running in gone:
            self.pages.release(running.pages)
            self._scheduler.release(running.request)
        self._running = [running for running in self._running if running not in gone]
        kept = [torch.arange(running.span.start, running.span.stop) for running in self._running]
        self._rows = self._rows.gather(torch.cat([torch.empty(0, dtype=torch.int64), *kept]).to(self.model.device))
        stop = 0
        for running in self._running:
            running.span = slice(stop, stop + running.num_rows)
            stop = running.span.stop

    def _free_orphans(self) -> None:
        """Free the slots that no live row descends from."""
        slots = self._rows.slots
        self.slots.keep_only(slots[slots != NO_SLOT])


def _failure(stage: str, error: Exception) -> EngineFailure:
    """Names the kind of error and no more: its text may hold addresses and paths, which go to logs by the cause."""
    failure = EngineFailure(f"the {stage} step failed: {type(error).__name__}")
    failure.__cause__ = error
    return failure
