"""The two ways a batch of requests runs through the model: prompts once each, then the rows of all beams together."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

import torch
from torch import Tensor

from recall_service.engine.attention import BeamAttention, BeamSpan, PromptAttention, PromptSpan
from recall_service.engine.beams import BeamRows
from recall_service.engine.kv_cache import BeamSlots, ContextPages
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.running import RunningRequest
from recall_service.engine.search import Forwarded
from recall_service.engine.transfer import to_device


@dataclass(frozen=True, slots=True, eq=False)
class Forwards:
    """Runs batches and writes their KV; what becomes of the logits is the searches' business.

    slice_head: compute no logits that the score space does not need.
    """

    model: Decoder
    pages: ContextPages
    slots: BeamSlots
    slice_head: bool

    def prefill(self, batch: Sequence[RunningRequest]) -> list[list[Forwarded]]:
        """Run what is new of each prompt, together; their root rows with the logits of their last tokens."""
        device = self.model.device
        prefix_lens = [running.context.num_cached_tokens for running in batch]
        prompts = [torch.as_tensor(running.request.prompt, dtype=torch.int64) for running in batch]
        new_tokens = [prompt[prefix_len:] for prompt, prefix_len in zip(prompts, prefix_lens, strict=True)]
        ends = list(accumulate(map(len, new_tokens)))
        tokens = torch.cat(new_tokens)
        positions = torch.cat(list(map(torch.arange, prefix_lens, map(len, prompts))))
        spans = [
            PromptSpan(slice(end - len(new), end), running.places, prefix_len)
            for running, new, end, prefix_len in zip(batch, new_tokens, ends, prefix_lens, strict=True)
        ]
        attention = PromptAttention(self.pages.storage, spans)
        tokens, positions, last_rows = (
            to_device(values, device, torch.int64) for values in (tokens, positions, [end - 1 for end in ends])
        )
        hidden = self.model.hidden(tokens, positions, attention, last_rows)
        groups = [(running, running.groups[0]) for running in batch]
        return [[forwarded] for forwarded in self._with_logits(groups, hidden)]

    def decode(self, batch: Sequence[RunningRequest]) -> list[list[Forwarded]]:
        """Run the last token of every row, together."""
        groups = [(running, rows) for running in batch for rows in running.groups]
        counts = [len(rows) for _, rows in groups]
        ends = list(accumulate(counts))
        own_slots = self.slots.allocate(ends[-1]).split(counts)
        placed = [(running, rows.with_own_slots(own)) for (running, rows), own in zip(groups, own_slots, strict=True)]
        tokens = torch.cat([rows.tokens[:, -1] for _, rows in placed])
        positions = torch.cat(
            [torch.full((len(rows),), len(running.request.prompt) + rows.depth - 1) for running, rows in placed]
        ).to(tokens.device)
        spans = [
            BeamSpan(slice(end - len(rows), end), running.places, rows.slots)
            for (running, rows), end in zip(placed, ends, strict=True)
        ]
        attention = BeamAttention(self.pages.storage, self.slots.storage, spans)
        forwarded = iter(self._with_logits(placed, self.model.hidden(tokens, positions, attention)))
        return [list(islice(forwarded, len(running.groups))) for running in batch]

    def _with_logits(self, groups: Sequence[tuple[RunningRequest, BeamRows]], hidden: Tensor) -> list[Forwarded]:
        """The groups with their logits. All that need the same tokens share one product with the head."""
        needed = [running.request.tokens_needed(rows.depth) if self.slice_head else None for running, rows in groups]
        parts = hidden.split([len(rows) for _, rows in groups])
        logits: dict[int, Tensor] = {}
        for tokens in set(needed):
            members = [index for index, wanted in enumerate(needed) if wanted == tokens]
            together = self.model.logits(torch.cat([parts[index] for index in members]), *(tokens or ()))
            logits.update(zip(members, together.split([len(parts[index]) for index in members]), strict=True))
        return [
            Forwarded(rows, logits[index], 0 if tokens is None else tokens.first)
            for index, ((_, rows), tokens) in enumerate(zip(groups, needed, strict=True))
        ]
