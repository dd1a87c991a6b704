"""How a search without a catalogue goes on and ends, in the words and with the defaults of transformers' `generate`.

This module knows no tensors: `free_search` does what it says.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from recall_service.errors import Violation

TEMPERATURES = (0.01, 100.0)  # beyond these, fp32 logits overflow or all become one
LENGTH_PENALTIES = (-10.0, 10.0)  # beyond these, fp32 cannot hold length ** length_penalty


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A search over the whole vocabulary.

    max_new_tokens: how long a path may become, its stop token counted.
    stop_tokens: ids that end a path; empty: every path is max_new_tokens long.
    length_penalty: a path's score is the sum of its log-probabilities / length ** length_penalty; 0 leaves the sum.
    early_stopping: what ends the search once beam_width paths have ended. True: at once. False: when the best live
        beam, were it to end now, would not beat the worst of them. "never": when it could not at any length either.
    temperature: log-probabilities are those of softmax(logits / temperature).
    """

    max_new_tokens: int
    stop_tokens: frozenset[int] = frozenset()
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    temperature: float = 1.0

    @property
    def is_fixed_length(self) -> bool:
        """Every path ends at max_new_tokens and nowhere else, so normalising by length changes no order."""
        return not self.stop_tokens

    def normaliser(self, length: int) -> float:
        """What the sum of log-probabilities of a path of that length is divided by."""
        return float(length**self.length_penalty)

    def best_length(self, length: int) -> int:
        """The length to normalise a live path of `length` tokens by, to judge whether it may still come out ahead."""
        is_patient = self.early_stopping == "never" and self.length_penalty > 0.0
        return self.max_new_tokens if is_patient else length

    def violations(self, vocab_size: int) -> Iterator[Violation]:
        """Every field but max_new_tokens, which the engine's limits speak for, against what it may be."""
        unknown = sorted(token for token in self.stop_tokens if not 0 <= token < vocab_size)
        if unknown:
            yield Violation("generation.stop_tokens", f"holds {unknown[0]}; the model's ids are 0 to {vocab_size - 1}")
        for name, value, (lowest, highest) in (
            ("length_penalty", self.length_penalty, LENGTH_PENALTIES),
            ("temperature", self.temperature, TEMPERATURES),
        ):
            if not (math.isfinite(value) and lowest <= value <= highest):
                yield Violation(f"generation.{name}", f"{value}; give {lowest:g} to {highest:g}")
        if self.early_stopping not in (True, False, "never"):
            yield Violation("generation.early_stopping", f'{self.early_stopping!r}; give True, False or "never"')
