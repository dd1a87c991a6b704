"""What came of one replayed question, and its form as a line of JSON.

Times are seconds from the start of the run on one monotonic clock. Latency counts from the moment the question was
meant to be sent: a server that stalls delays the questions behind it too, and that wait is the callers'.
"""

import json
from dataclasses import dataclass
from typing import Any, Self

from recall_service.replay.asked import Answered

_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode  # made once: a run writes thousands a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One question's fate.

    index: the question's, in its source.
    intended_seconds, sent_seconds, done_seconds: when it was to be sent, was sent, and was answered or given up.
    code: the gRPC status by name. error_reason: the server's stable name for what went wrong; empty when none.
    was_cancelled: given up by the replay on purpose. is_warm_up: not for any summary.
    answer: set when the code is OK.
    """

    index: int
    scene: str
    intended_seconds: float
    sent_seconds: float
    done_seconds: float
    code: str
    error_reason: str = ""
    was_cancelled: bool = False
    is_warm_up: bool = False
    answer: Answered | None = None

    @property
    def latency_seconds(self) -> float:
        """From the moment it was to be sent: what a caller felt."""
        return self.done_seconds - self.intended_seconds

    @property
    def service_seconds(self) -> float:
        """From the moment it was sent: what the target took."""
        return self.done_seconds - self.sent_seconds

    @property
    def lag_seconds(self) -> float:
        """How late it was sent."""
        return self.sent_seconds - self.intended_seconds

    def to_json(self) -> str:
        """One line, without its line feed."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        if self.answer is not None:
            fields["answer"] = {name: getattr(self.answer, name) for name in self.answer.__slots__}
        return _encode(fields)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """The outcome that `to_json` wrote. Raises ValueError when the line is none."""
        try:
            fields: dict[str, Any] = json.loads(line)
            if (answer := fields.get("answer")) is not None:
                fields["answer"] = Answered(
                    **{**answer, "item_ids": tuple(answer["item_ids"]), "scores": tuple(answer["scores"])}
                )
            return cls(**fields)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not an outcome of a replay: {error}") from error
