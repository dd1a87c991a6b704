"""What questions are put to: one seam, behind which stands a server or a bundle in this process."""

from dataclasses import dataclass
from typing import Protocol

from recall_service.replay.asked import Answered, Asked


@dataclass(frozen=True, slots=True)
class Reply:
    """What a target said: the gRPC status by name, and the answer when that is OK.

    error_reason: the server's stable name for what went wrong; empty when no server spoke.
    """

    code: str
    error_reason: str = ""
    answer: Answered | None = None

    @property
    def is_from_nobody(self) -> bool:
        """No server could be reached; one that is merely not ready says so with a reason."""
        return self.code == "UNAVAILABLE" and not self.error_reason


class Target(Protocol):
    """Belongs to the event loop that it was opened in; close it in the same."""

    async def open(self) -> str:
        """Connect or load, and check that questions will be understood; returns what answers there, in words.

        Raises SetupError saying what is wrong with the target.
        """

    async def ask(self, asked: Asked, timeout_seconds: float) -> Reply:
        """Put one question. A call that fails is a reply; cancelling this coroutine gives the call up."""

    async def close(self) -> None:
        """Let go of what `open` took."""
