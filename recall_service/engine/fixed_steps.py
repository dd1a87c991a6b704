"""Forward and selection of one level at fixed shapes, as one piece of work that a GPU can be told to repeat.

A step of so many requests and such a shape has memory of its own for what goes in, so that it can be captured once as
a CUDA graph and replayed: the host then says one word where it said hundreds. On other devices, and with capturing
off, the same function runs as it stands.
"""

import copy
import logging
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recall_service.engine.beams import BeamRows
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.fixed_level import Level, LevelShape, go_down
from recall_service.engine.fixed_search import FixedBeamSearch
from recall_service.engine.fixed_selection import SelectionKernels
from recall_service.engine.kv_cache import BeamSlots, ContextPages, KvStorage, KvTarget
from recall_service.engine.memory import is_out_of_memory
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest
from recall_service.engine.running import RunningRequest
from recall_service.engine.step_recorder import StepRecorder
from recall_service.engine.transfer import to_device

logger = logging.getLogger(__name__)

MAX_STEPS = 64  # that many shapes that were not prepared are remembered, the latest used; others are made again
MAX_SIZES = 8  # of these, one width may take so many at each depth before anyone asks: up to 16 requests together


class FixedKernels(NamedTuple):
    """The kernels that a step is made of: Triton's, or the references beside them."""

    beam_attention: Callable[..., Tensor]
    selection: SelectionKernels


@dataclass(frozen=True, slots=True, eq=False)
class FixedAttention:
    """All rows of all requests over their own prompts' pages and their own ancestors, in one launch a layer."""

    context: KvStorage
    slots: KvStorage
    page_table: Tensor  # int32 [requests, pages]
    page_len: int
    context_lens: Tensor  # int32 [requests]
    ancestors: Tensor  # int64 [rows, depth]
    kernel: Callable[..., Tensor]

    def target(self, layer: int) -> KvTarget:
        """See `decoder.Attention`."""
        return self.slots.target(layer, self.ancestors[:, -1])

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002  in the slots
        """See `decoder.Attention`."""
        context, slots = self.context, self.slots
        return self.kernel(
            queries,
            context.keys[layer],
            context.values[layer],
            self.page_table,
            self.page_len,
            self.context_lens,
            slots.keys[layer],
            slots.values[layer],
            self.ancestors,
        )


class FixedStep:
    """One level of `num_requests` requests of one shape; padding requests fill up what is missing."""

    def __init__(
        self,
        model: Decoder,
        pages: ContextPages,
        slots: BeamSlots,
        shape: LevelShape,
        num_requests: int,
        max_pages: int,
        kernels: FixedKernels,
        *,
        slice_head: bool,
    ) -> None:
        self._model, self._shape, self._num_requests, self._kernels = model, shape, num_requests, kernels
        device = model.device
        self._tokens_needed = shape.tokens_needed if slice_head else None
        self._absent = BeamRows.absent(shape.width, shape.depth, slots.scratch, device)
        self._rows = BeamRows.concatenate([self._absent] * num_requests)
        self._contexts = torch.zeros(num_requests * (1 + max_pages), dtype=torch.int32, device=device)
        self._context_lens, page_table = self._contexts.split([num_requests, num_requests * max_pages])
        self._attention = FixedAttention(
            context=pages.storage,
            slots=slots.storage,
            page_table=page_table.view(num_requests, max_pages),
            page_len=pages.page_len,
            context_lens=self._context_lens,
            ancestors=self._rows.slots,
            kernel=kernels.beam_attention,
        )

    def load(self, batch: Sequence[RunningRequest], groups: Sequence[BeamRows]) -> None:
        """What goes in, where the step looks for it. Rows name the slots that their last tokens' KV goes to."""
        contexts = np.zeros(self._contexts.shape, np.int32)  # one copy: all lengths, then all pages
        contexts[: len(batch)] = [len(running.request.prompt) for running in batch]
        page_table = contexts[self._num_requests :].reshape(self._num_requests, -1)
        for line, running in zip(page_table, batch, strict=False):
            line[: len(running.context.pages)] = running.context.pages
        self._contexts.copy_(to_device(contexts, self._model.device, torch.int32))
        filled = [*groups, *[self._absent] * (self._num_requests - len(batch))]
        for own, parts in zip(self._rows.parts(), zip(*(rows.parts() for rows in filled), strict=True), strict=True):
            torch.cat(parts, out=own)

    def run(self) -> Level:
        """Forward every row, and select what is below. No launch depends on a value."""
        rows, depth = self._rows, self._shape.depth
        positions = (self._context_lens.long() + depth - 1)[:, None].expand(-1, self._shape.width).flatten()
        hidden = self._model.hidden(rows.tokens[:, -1], positions, self._attention)
        logits = self._model.logits(hidden, *(self._tokens_needed or ()))
        first_token = self._tokens_needed.first if self._tokens_needed else 0
        return go_down(self._shape, rows, logits, self._num_requests, first_token, self._kernels.selection)


def by_shape(running: Sequence[RunningRequest]) -> dict[LevelShape, list[tuple[RunningRequest, FixedBeamSearch]]]:
    """The searches of fixed shapes that stand between two levels, those together that can go down together."""
    shapes: dict[LevelShape, list[tuple[RunningRequest, FixedBeamSearch]]] = {}
    for each in running:
        if each.steps and each.groups and isinstance(each.search, FixedBeamSearch):
            shapes.setdefault(LevelShape.of(each.request, each.groups[0].depth), []).append((each, each.search))
    return shapes


@dataclass(slots=True, eq=False)
class _Remembered:
    """A step, how often it ran, and how to repeat it at a word once it is captured."""

    step: FixedStep
    times_run: int = 0
    replay: Callable[[], Level] | None = None


class _Key(NamedTuple):
    """What a step is remembered by: a shape without its constraint, which is not kept alive to be asked for again."""

    constraint: "weakref.ref[TrieConstraint] | None"
    shape: LevelShape
    num_requests: int

    @classmethod
    def of(cls, shape: LevelShape, num_requests: int) -> "_Key":
        """The key of the step of so many requests of a shape."""
        constraint = None if shape.constraint is None else weakref.ref(shape.constraint)
        return cls(constraint, shape._replace(constraint=None), num_requests)

    @property
    def is_out_of_use(self) -> bool:
        """Whether nobody can ask for it any more."""
        return self.constraint is not None and self.constraint() is None


class FixedSteps:
    """The steps that are remembered, by shape and number of requests, until nobody can ask for their catalogue.

    Those that were prepared all are; of others, of filters say, the latest.

    captured: replay as CUDA graphs those that were prepared or come again. Off, or without CUDA, steps run as they
        stand; so they do for good when a capture fails for another reason than memory.
    """

    def __init__(
        self,
        model: Decoder,
        pages: ContextPages,
        slots: BeamSlots,
        max_pages: int,
        kernels: FixedKernels,
        *,
        slice_head: bool,
        captured: bool,
    ) -> None:
        self._model, self._pages, self._slots, self._max_pages = model, pages, slots, max_pages
        self.kernels = kernels
        self._slice_head = slice_head
        self._recorder = StepRecorder(model.device) if captured and model.device.type == "cuda" else None
        self._prepared: dict[_Key, _Remembered] = {}
        self._steps: OrderedDict[_Key, _Remembered] = OrderedDict()

    def run(self, shape: LevelShape, batch: Sequence[RunningRequest]) -> list[Level]:
        """Forward the rows of requests of one shape; each request's share of the next level."""
        self._forget_what_is_out_of_use()
        own_slots = self._slots.allocate(shape.width * len(batch)).split(shape.width)
        groups = [running.groups[0].with_own_slots(own) for running, own in zip(batch, own_slots, strict=True)]
        remembered = self._remember(shape, padded(len(batch)))
        if remembered.times_run == 1:  # it comes again, so it is worth the wait
            self._capture(remembered)
        remembered.step.load(batch, groups)
        remembered.times_run += 1
        level = (remembered.replay or remembered.step.run)().clone()
        return [level.of_request(index) for index in range(len(batch))]

    def prepare(self, request: BeamRequest, most: int) -> None:
        """Make and capture the steps of up to `most` requests like this one, so that none of them waits for that."""
        self._forget_what_is_out_of_use()
        sizes = sorted({padded(count) for count in range(1, most + 1)})
        for depth in range(1, request.path_len):
            shape = LevelShape.of(request, depth)
            for num_requests in sizes[:MAX_SIZES]:
                key = _Key.of(shape, num_requests)
                if key not in self._prepared:
                    is_known = key in self._steps
                    self._prepared[key] = self._steps.pop(key) if is_known else self._make(shape, num_requests)
                self._capture(self._prepared[key])

    def _forget_what_is_out_of_use(self) -> None:
        for steps in (self._prepared, self._steps):
            for key in [key for key in steps if key.is_out_of_use]:
                del steps[key]

    def _remember(self, shape: LevelShape, num_requests: int) -> _Remembered:
        key = _Key.of(shape, num_requests)
        if (prepared := self._prepared.get(key)) is not None:
            return prepared
        if key not in self._steps:
            while len(self._steps) >= MAX_STEPS:
                self._steps.popitem(last=False)
            self._steps[key] = self._make(shape, num_requests)
        self._steps.move_to_end(key)
        return self._steps[key]

    def _make(self, shape: LevelShape, num_requests: int) -> _Remembered:
        # A copy of the constraint lives as long as the step, which reads its arrays.
        step = FixedStep(
            self._model,
            self._pages,
            self._slots,
            shape._replace(constraint=copy.copy(shape.constraint)),
            num_requests,
            self._max_pages,
            self.kernels,
            slice_head=self._slice_head,
        )
        return _Remembered(step)

    def _capture(self, remembered: _Remembered) -> None:
        if self._recorder is None or remembered.replay is not None:
            return
        try:
            remembered.replay = self._recorder.record(remembered.step.run)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            logger.exception("a step could not be captured; from now on steps run as they stand")
            self._recorder = None


def padded(num_requests: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...: few enough to capture each, and never half as many again."""
    coarse = max(1, (1 << (num_requests - 1).bit_length()) >> 2)
    return -(-num_requests // coarse) * coarse
