"""BeamEngine: submit requests, run steps, collect what completed.

One step takes every running request one level further: prompts that were just admitted are prefilled, the rows of all
others are forwarded together, then each request selects its own beams. Requests join and leave between steps.
The engine is synchronous and belongs to one thread; whoever drives it decides which.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from recall_service.engine.beam_search import BeamSearch
from recall_service.engine.beams import BeamRows
from recall_service.engine.forwards import Forwards
from recall_service.engine.free_search import FreeSearch
from recall_service.engine.kv_cache import BeamSlots, ContextPages, page_bytes
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.prefix_cache import PrefixCache
from recall_service.engine.proven_search import ProvenSearch
from recall_service.engine.request import BeamRequest, BeamResult, ScoreSpace, SearchMode
from recall_service.engine.running import RunningRequest
from recall_service.engine.scheduler import EngineLimits, Scheduler, Waiting
from recall_service.engine.search import Forwarded, Search
from recall_service.errors import (
    DeadlineExpired,
    EngineFailure,
    InvalidRequest,
    RecallError,
    RequestCancelled,
    Violation,
)

_BUDGET_IN_BEAMS = 4  # what proving may cost in all, when the request does not say


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
class BeamEngine:
    """Beam search over one decoder. Pools are allocated once, here, for the worst case of `limits`.

    observe_step: called with a StepReport after each forward.
    skip_rows: forward no row of a catalogue's last level that cannot change the answer.
    slice_head: compute no logits that the score space does not need.
    """

    model: Decoder
    limits: EngineLimits = field(default_factory=EngineLimits)
    observe_step: Callable[[StepReport], None] | None = None
    skip_rows: bool = True
    slice_head: bool = True

    pages: ContextPages = field(init=False)
    prefixes: PrefixCache = field(init=False)
    slots: BeamSlots = field(init=False)
    _forwards: Forwards = field(init=False)
    _scheduler: Scheduler = field(init=False)
    _running: list[RunningRequest] = field(init=False, default_factory=list)
    _completed: list[Completion] = field(init=False, default_factory=list)
    _next_id: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        config, limits, where = self.model.config, self.limits, (self.model.dtype, self.model.device)
        num_kept_pages = limits.prefix_cache_bytes // page_bytes(config, limits.page_len, self.model.dtype)
        num_pages = limits.context_pages + (num_kept_pages if limits.prefix_cache else 0)
        self.pages = ContextPages(config, num_pages, limits.page_len, *where)
        self.prefixes = PrefixCache(self.pages)
        self.slots = BeamSlots(config, limits.num_slots, *where)
        self._forwards = Forwards(self.model, self.pages, self.slots, slice_head=self.slice_head)
        self._scheduler = Scheduler(limits)

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
        return sum(running.num_rows for running in self._running)

    def submit(self, request: BeamRequest) -> int:
        """Queue a request and return its id. Raises InvalidRequest, or Overloaded when the queue is full."""
        request = self._with_row_budget(request)
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
        steps = next((running.steps for running in self._running if running.request_id == request_id), None)
        return "queue" if steps is None else "prefill" if steps == 0 else "decode"

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
            self._advance(self._forward())
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

    def _with_row_budget(self, request: BeamRequest) -> BeamRequest:
        """The request, its budget decided if that was left to the engine."""
        if request.search_mode is not SearchMode.PROVEN or request.row_budget:
            return request
        rows_of_beam = 1 + request.beam_width * (request.path_len - 1)
        return replace(request, row_budget=min(_BUDGET_IN_BEAMS * rows_of_beam, self.limits.num_slots + 1))

    def _check(self, request: BeamRequest) -> None:
        violations = [*self._scheduler.violations(request, self.pages), *self._model_violations(request)]
        if violations:
            raise InvalidRequest(violations)

    def _model_violations(self, request: BeamRequest) -> Iterator[Violation]:
        """What the model cannot do, whatever the limits."""
        config, prompt, constraint = self.model.config, request.prompt, request.constraint
        if len(prompt) and not (prompt.min() >= 0 and prompt.max() < config.vocab_size):
            yield Violation("prompt", f"holds a token id outside 0 to {config.vocab_size - 1}")
        longest = config.max_positions - request.path_len + 1  # the last token is never forwarded
        if len(prompt) > longest:
            yield Violation("prompt", f"{len(prompt)} tokens; the model reaches {longest}")
        if constraint is not None and constraint.max_token >= config.vocab_size:
            yield Violation("constraint", f"names token {constraint.max_token}; the model has {config.vocab_size}")
        if request.generation is not None:
            yield from request.generation.violations(config.vocab_size)
        if constraint is None and request.score_space is not ScoreSpace.VOCABULARY:
            yield Violation("score_space", f"{request.score_space.value}; a free search knows VOCABULARY alone")
        if constraint is None and request.search_mode is not SearchMode.BEAM:
            yield Violation("search_mode", f"{request.search_mode.value}; a free search knows BEAM alone")

    def _drop_expired(self) -> None:
        now = time.monotonic()
        self._completed += [
            Completion(waiting.request_id, DeadlineExpired("queue")) for waiting in self._scheduler.remove_expired(now)
        ]
        for running in list(self._running):
            deadline = running.request.deadline
            if deadline is not None and deadline <= now:
                self._fail([running], DeadlineExpired("prefill" if running.steps <= 1 else "decode"))

    def _admit(self) -> None:
        device = self.model.device
        while (waiting := self._scheduler.admit(self.prefixes)) is not None:
            prompt = waiting.request.prompt
            context = self.prefixes.reserve(prompt)
            self._running.append(
                RunningRequest(
                    request_id=waiting.request_id,
                    request=waiting.request,
                    search=self._search(waiting.request),
                    groups=[BeamRows.root(device)],
                    context=context,
                    places=self.pages.places(context.pages, len(prompt)),
                    submitted=waiting.submitted,
                    admitted=time.monotonic(),
                )
            )

    def _search(self, request: BeamRequest) -> Search:
        device = self.model.device
        if request.generation is not None:
            return FreeSearch(request, request.generation, device)
        if request.search_mode is SearchMode.PROVEN:
            return ProvenSearch(request, device)
        return BeamSearch(request, device, skip_rows=self.skip_rows)

    def _forward(self) -> list[tuple[RunningRequest, list[Forwarded]]]:
        """The rows of every running request with their logits. Where a forward fails, its requests fail."""
        deeper = [running for running in self._running if running.steps]
        fresh = [running for running in self._running if not running.steps]
        forwarded: list[tuple[RunningRequest, list[Forwarded]]] = []
        phases = (("decode", deeper, self._forwards.decode), ("prefill", fresh, self._forwards.prefill))
        for phase, batch, forward in phases:
            if not batch:
                continue
            try:
                results = forward(batch)
            except Exception as error:  # noqa: BLE001  whatever a forward raises, the engine goes on
                self._fail(batch, _failure(phase, error))
                continue
            forwarded += zip(batch, results, strict=True)
            for running in batch:
                running.steps += 1
                running.rows_forwarded += running.num_rows
                running.prefilled = running.prefilled or time.monotonic()
            if self.observe_step is not None:
                self.observe_step(StepReport(phase, len(batch), sum(running.num_rows for running in batch)))
        return forwarded

    def _advance(self, forwarded: list[tuple[RunningRequest, list[Forwarded]]]) -> None:
        """Each request's search says what it wants next; one whose logits are not numbers fails alone."""
        for running, groups in forwarded:
            try:
                running.groups = running.search.advance(groups)
            except EngineFailure as error:
                self._fail([running], error)
            except Exception as error:  # noqa: BLE001  out of memory, most likely: narrower beams may still fit
                self._fail([running], _failure("selection", error))
            else:
                if self.limits.prefix_cache and running.steps == 1:  # not sooner: the logits vouch for the prompt's KV
                    self.prefixes.publish(running.request.prompt, running.context.pages)

    def _finish(self) -> None:
        """Complete the requests that want nothing more."""
        done = [running for running in self._running if not running.groups]
        self._completed += [Completion(running.request_id, self._result(running)) for running in done]
        self._drop(done)

    def _result(self, running: RunningRequest) -> BeamResult:
        paths, bound, proven_count, rows_skipped = running.search.found()
        request, scores = running.request, paths.scores.cpu().numpy()
        lengths = paths.lengths.cpu().numpy()
        longest = int(lengths.max()) if len(lengths) else request.path_len  # a search may run dry before its last level
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
            rows_forwarded=running.rows_forwarded,
            rows_skipped=rows_skipped,
            cached_prompt_tokens=running.context.num_cached_tokens,
            queue_seconds=running.admitted - running.submitted,
            prefill_seconds=running.prefilled - running.admitted,
            decode_seconds=time.monotonic() - running.prefilled,
        )

    def _fail(self, failed: list[RunningRequest], error: RecallError) -> None:
        self._completed += [Completion(running.request_id, error) for running in failed]
        self._drop(failed)

    def _drop(self, gone: list[RunningRequest]) -> None:
        """Take requests out; whatever they owned is free afterwards."""
        for running in gone:
            self.prefixes.release(running.context.pages)
            self._scheduler.release(running.request)
        self._running = [running for running in self._running if running not in gone]

    def _free_orphans(self) -> None:
        """Free the slots that no row descends from any more."""
        nothing = torch.empty(0, dtype=torch.int64, device=self.model.device)
        live = [rows.slots.flatten() for running in self._running for rows in running.groups]
        held = [slots.flatten() for running in self._running for slots in running.search.held_slots()]
        self.slots.keep_only(torch.cat([nothing, *live, *held]))


def _failure(stage: str, error: Exception) -> EngineFailure:
    """Names the kind of error and no more: its text may hold addresses and paths, which go to logs by the cause."""
    failure = EngineFailure(f"the {stage} step failed: {type(error).__name__}")
    failure.__cause__ = error
    return failure
