"""A model that fails when a prompt asks for it, in the prefill or one level further down. Knows no server.

A prefill fails at a token that stands for a fault: a row of the vocabulary that is no token of any text. A decode
fails at a position that stands for one, which only a prompt of that length reaches; all other prompts are shorter.
"""

import time
from enum import IntEnum

import torch
from torch import Tensor

from recall_service.engine.models.decoder import Attention, Decoder

FIRST_FAULT_TOKEN = 274
FIRST_FAULT_LEN = 90
_LEN_STEP = 4  # the levels below the first reach further positions, which must ask for nothing

SLOW_SECONDS, SLEEP_SECONDS, HANG_SECONDS = 0.05, 0.3, 2.5


class Fault(IntEnum):
    """What a prompt may ask for; the first three only take their time."""

    SLOW = 0
    SLEEPS = 1
    HANGS = 2
    RAISES = 3
    OUT_OF_MEMORY = 4
    NAN = 5


SECONDS = {Fault.SLOW: SLOW_SECONDS, Fault.SLEEPS: SLEEP_SECONDS, Fault.HANGS: HANG_SECONDS}


def prefill_prompt(fault: Fault, *tokens: int) -> tuple[int, ...]:
    """A prompt whose prefill has the fault; other `tokens` make it one of its own."""
    return (*tokens, FIRST_FAULT_TOKEN + fault, 7)


def decode_prompt(fault: Fault, *tokens: int) -> tuple[int, ...]:
    """A prompt whose first decode has the fault; other `tokens` make it one of its own."""
    length = FIRST_FAULT_LEN + _LEN_STEP * fault
    return (*tokens, *range(length))[:length]


def install() -> None:
    """Every decoder of this process fails as it is asked to from now on."""
    healthy = Decoder.hidden

    def hidden(
        decoder: Decoder, tokens: Tensor, positions: Tensor, attention: Attention, wanted: Tensor | None = None
    ) -> Tensor:
        is_prefill = wanted is not None
        marks = tokens - FIRST_FAULT_TOKEN if is_prefill else (positions - FIRST_FAULT_LEN) / _LEN_STEP  # [n]
        asked = {fault for fault in Fault if fault in marks.tolist()}
        time.sleep(sum(SECONDS.get(fault, 0.0) for fault in asked))
        if Fault.RAISES in asked:
            raise RuntimeError("a fault that a prompt asked for")
        if Fault.OUT_OF_MEMORY in asked:
            raise torch.OutOfMemoryError("out of memory, as a prompt asked for")
        states = healthy(decoder, tokens, positions, attention, wanted)
        guilty = (marks == Fault.NAN).nonzero().flatten()
        states[guilty if wanted is None else torch.searchsorted(wanted, guilty)] = torch.nan
        return states

    Decoder.hidden = hidden  # type: ignore[method-assign]
