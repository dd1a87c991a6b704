"""BeamEngine: submit requests, run steps, collect what completed.

One step takes every running request one level further: prompts that were just admitted are prefilled, the rows of all
others are forwarded together, then each request selects its own beams. Requests join and leave between steps.
The engine is synchronous and belongs to one thread; whoever drives it decides which.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from recall_service.engine.beam_search import BeamSearch
from recall_service.engine.beams import BeamRows
from recall_service.engine.device import choose_attention_backends, on_device
from recall_service.engine.fixed_search import FixedBeamSearch, has_fixed_shapes
from recall_service.engine.fixed_steps import FixedKernels, FixedSteps, by_shape
from recall_service.engine.forwards import Forwards
from recall_service.engine.free_search import FreeSearch
from recall_service.engine.kv_cache import BeamSlots, ContextPages, page_bytes
from recall_service.engine.memory import free_bytes, refuse_what_does_not_fit
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.prefix_cache import PrefixCache, PromptPages
from recall_service.engine.proven_search import ProvenSearch
from recall_service.engine.request import BeamRequest, BeamResult, SearchMode
from recall_service.engine.request_checks import model_violations, with_row_budget
from recall_service.engine.running import RunningRequest
from recall_service.engine.scheduler import EngineLimits, Scheduler
from recall_service.engine.search import Forwarded, Search
from recall_service.engine.step_failure import failure_of
from recall_service.engine.waiting import Waiting
from recall_service.errors import DeadlineExpired, EngineFailure, InvalidRequest, RecallError, RequestCancelled

logger = logging.getLogger(__name__)


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

    observe_step: called with a StepReport after each forward; should it raise, that is logged and the step goes on.
    skip_rows: forward no row of a catalogue's last level that cannot change the answer.
    slice_head: compute no logits that the score space does not need.
    fixed_kernels: what searches of fixed shapes run on. None: Triton's kernels on a GPU, for heads of a size that they
        take; elsewhere no search has fixed shapes, for a host that never waits is worth nothing there.
    captured: run steps of fixed shapes as CUDA graphs.
    Raises SettingsError when the GPU has no room for the pools that `limits` ask for.
    """

    model: Decoder
    limits: EngineLimits = field(default_factory=EngineLimits)
    observe_step: Callable[[StepReport], None] | None = None
    skip_rows: bool = True
    slice_head: bool = True
    fixed_kernels: FixedKernels | None = None
    captured: bool = True

    pages: ContextPages = field(init=False)
    prefixes: PrefixCache = field(init=False)
    slots: BeamSlots = field(init=False)
    _forwards: Forwards = field(init=False)
    _fixed_steps: FixedSteps | None = field(init=False, default=None)
    _sees_steps_end: bool = field(init=False)
    _scheduler: Scheduler = field(init=False)
    _running: list[RunningRequest] = field(init=False, default_factory=list)
    _completed: list[Completion] = field(init=False, default_factory=list)
    _next_id: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        config, limits, where = self.model.config, self.limits, (self.model.dtype, self.model.device)
        num_kept_pages = limits.prefix_cache_bytes // page_bytes(config, limits.page_len, self.model.dtype)
        num_pages = limits.context_pages + (num_kept_pages if limits.prefix_cache else 0)
        if self.model.device.type == "cuda":
            choose_attention_backends()
            refuse_what_does_not_fit(config, limits, num_pages, self.model.dtype, free_bytes(self.model.device))
        self.pages = ContextPages(config, num_pages, limits.page_len, *where)
        self.prefixes = PrefixCache(self.pages)
        self.slots = BeamSlots(config, limits.num_slots, *where)
        self._forwards = Forwards(self.model, self.pages, self.slots, slice_head=self.slice_head)
        self._scheduler = Scheduler(limits)
        self._fixed_steps = self._make_fixed_steps()
        self._sees_steps_end = self._fixed_steps is None and self.model.device.type == "cpu"

    @property
    def is_idle(self) -> bool:
        """Nothing runs, waits, or is yet to be collected."""
        return not (self._running or self._scheduler.num_waiting or self._completed)

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return self._scheduler.num_waiting

    @property
    def queue_age_seconds(self) -> float:
        """How long the longest wait in the queue is; 0 when nobody waits. A snapshot that any thread may take."""
        return self._scheduler.age_seconds(time.monotonic())

    @property
    def num_running(self) -> int:
        """Requests that own rows."""
        return len(self._running)

    @property
    def num_rows(self) -> int:
        """Live beams of all running requests."""
        return sum(running.num_rows for running in self._running)

    @property
    def reserved_rows(self) -> int:
        """Rows that running requests may come to need. A snapshot that any thread may take, as are the next two."""
        return self._scheduler.reserved_rows

    @property
    def reserved_tokens(self) -> int:
        """Prompt tokens of running requests."""
        return self._scheduler.reserved_tokens

    @property
    def reserved_work(self) -> Sequence[int]:
        """Work of running requests, as `Demand.work` counts it, by priority."""
        return self._scheduler.reserved_work

    def submit(self, request: BeamRequest, *, arrived: float | None = None) -> int:
        """Queue a request and return its id. Raises InvalidRequest.

        arrived: since when it waits, seconds of `time.monotonic()`; None for now.
        """
        request = with_row_budget(request, self.limits)
        self._check(request)
        self._next_id += 1
        self._scheduler.enqueue(Waiting(self._next_id, request, time.monotonic() if arrived is None else arrived))
        return self._next_id

    def cancel(self, request_id: int) -> None:
        """Stop a request wherever it is and give back what it owns. It completes with RequestCancelled."""
        error = RequestCancelled("cancelled by the caller")
        if self._scheduler.remove(request_id):
            self._completed.append(Completion(request_id, error))
            return
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
        with suppress(RuntimeError):  # of a GPU that is lost: nothing is left to be freed there
            self._free_orphans()
        completed, self._completed = self._completed, []
        return completed

    def step(self) -> list[Completion]:
        """Take every running request one level further; return whatever completed or failed since the last step."""
        with torch.inference_mode(), on_device(self.model.device):
            self._drop_expired()
            self._admit()
            fresh = [running for running in self._running if not running.steps]
            self._go_down_fixed()
            self._advance(self._forward("decode", self._ragged(), self._forwards.decode))
            self._advance(self._forward("prefill", fresh, self._forwards.prefill))
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

    def prepare(self, request: BeamRequest) -> None:
        """Make ready the steps of fixed shapes that as many requests like this one as fit can come to need.

        Raises EngineFailure, or Overloaded when there is no memory for them.
        """
        if self._fixed_steps is not None and has_fixed_shapes(request):
            try:
                with torch.inference_mode(), on_device(self.model.device):
                    self._fixed_steps.prepare(request, max(1, self.limits.max_rows // request.beam_width))
            except Exception as error:
                raise failure_of("warm-up", error) from error

    def _check(self, request: BeamRequest) -> None:
        violations = [*self._scheduler.violations(request, self.pages), *model_violations(request, self.model.config)]
        if violations:
            raise InvalidRequest(violations)

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
        while (waiting := self._scheduler.admit(self.prefixes)) is not None:
            pages: list[int] = []
            try:
                context = self.prefixes.reserve(waiting.request.prompt)
                pages = context.pages
                self._running.append(self._start(waiting, context))
            except Exception as error:  # noqa: BLE001  it never ran, so it gives back here what was reserved for it
                self.prefixes.release(pages)
                self._scheduler.release(waiting.request)
                self._completed.append(Completion(waiting.request_id, failure_of("prefill", error)))

    def _start(self, waiting: Waiting, context: PromptPages) -> RunningRequest:
        return RunningRequest(
            request_id=waiting.request_id,
            request=waiting.request,
            search=self._search(waiting.request),
            groups=[BeamRows.root(self.model.device)],
            context=context,
            places=self.pages.places(context.pages, len(waiting.request.prompt)),
            submitted=waiting.submitted,
            admitted=time.monotonic(),
        )

    def _make_fixed_steps(self) -> FixedSteps | None:
        kernels = self.fixed_kernels
        if kernels is None and self.model.device.type == "cuda":
            from recall_service.engine.kernels.fixed import kernels_for  # no CPU needs Triton

            kernels = kernels_for(self.model.config.head_dim)
        if kernels is None:
            return None
        return FixedSteps(
            self.model,
            self.pages,
            self.slots,
            max_pages=self.pages.pages_for(self.limits.max_prompt_tokens),
            kernels=kernels,
            slice_head=self.slice_head,
            captured=self.captured,
        )

    def _search(self, request: BeamRequest) -> Search:
        device = self.model.device
        if self._fixed_steps is not None and has_fixed_shapes(request):
            return FixedBeamSearch(request, self._fixed_steps.kernels.selection)
        if request.generation is not None:
            return FreeSearch(request, request.generation, device)
        if request.search_mode is SearchMode.PROVEN:
            return ProvenSearch(request, device)
        return BeamSearch(request, device, skip_rows=self.skip_rows)

    def _ragged(self) -> list[RunningRequest]:
        """The requests whose rows are forwarded together, whatever their shapes."""
        deeper = [running for running in self._running if running.steps and running.groups]
        return [running for running in deeper if not isinstance(running.search, FixedBeamSearch)]

    def _forward(
        self,
        phase: str,
        batch: list[RunningRequest],
        forward: Callable[[list[RunningRequest]], list[list[Forwarded]]],
    ) -> list[tuple[RunningRequest, list[Forwarded]]]:
        """The rows of the requests with their logits. Where the forward fails, its requests fail."""
        if not batch:
            return []
        started = time.monotonic()
        try:
            results = forward(batch)
        except Exception as error:  # noqa: BLE001  whatever a forward raises, the engine goes on
            self._fail(batch, failure_of(phase, error))
            return []
        self._count(phase, batch)
        for running in batch:
            running.step_started = started
        return list(zip(batch, results, strict=True))

    def _go_down_fixed(self) -> None:
        """A level further with every search of fixed shapes: those of one shape together."""
        if self._fixed_steps is None:
            return
        for shape, members in by_shape(self._running).items():
            batch = [running for running, _ in members]
            try:
                levels = self._fixed_steps.run(shape, batch)
            except Exception as error:  # noqa: BLE001  the others go on
                self._fail(batch, failure_of("decode", error))
                continue
            self._count("decode", batch)
            for (running, search), level in zip(members, levels, strict=True):
                try:
                    running.groups = search.take(level)
                except Exception as error:  # noqa: BLE001  out of memory for its results
                    self._fail([running], failure_of("selection", error))

    def _count(self, phase: str, batch: list[RunningRequest]) -> None:
        """Take note of a forward that has run."""
        now = time.monotonic()
        for running in batch:
            running.steps += 1
            running.rows_forwarded += running.num_rows
            running.step_forwarded = now
            running.prefilled = running.prefilled or now
        if self.observe_step is None:
            return
        try:
            self.observe_step(StepReport(phase, len(batch), sum(running.num_rows for running in batch)))
        except Exception:
            logger.exception("whoever counts the engine's steps raised; the step goes on")

    def _advance(self, forwarded: list[tuple[RunningRequest, list[Forwarded]]]) -> None:
        """Each request's search says what it wants next; one whose logits are not numbers fails alone."""
        for running, groups in forwarded:
            started = time.monotonic()
            try:
                running.groups = running.search.advance(groups)
            except EngineFailure as error:
                self._fail([running], error)
            except Exception as error:  # noqa: BLE001  out of memory, most likely: narrower beams may still fit
                self._fail([running], failure_of("selection", error))
            else:
                if self._sees_steps_end:
                    running.note_step(groups, started, time.monotonic())
                if not isinstance(running.search, FixedBeamSearch):
                    self._publish(running)

    def _publish(self, running: RunningRequest) -> None:
        """Let other prompts find this one's pages; not sooner than something vouches for what the forward wrote."""
        if self.limits.prefix_cache and not running.is_published:
            running.is_published = True
            self.prefixes.publish(running.request.prompt, running.context.pages)

    def _finish(self) -> None:
        """Complete the requests that want nothing more, as soon as their outcomes are at hand."""
        nothing_else = all(not running.groups for running in self._running)
        done = [running for running in self._running if not running.groups]
        ready = [running for running in done if running.search.is_ready(wait=nothing_else)]
        for running in ready:
            try:
                result = running.result(time.monotonic())
            except EngineFailure as error:
                self._fail([running], error)
                continue
            except Exception as error:  # noqa: BLE001  the others have their answers
                self._fail([running], failure_of("selection", error))
                continue
            self._publish(running)
            self._completed.append(Completion(running.request_id, result))
            self._drop([running])

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
