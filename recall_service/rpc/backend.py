"""What the gRPC face needs from the room behind it. Knows no gRPC, so that the pipeline can satisfy it unawares."""

from collections.abc import Sequence
from typing import Protocol

from recall_service.serving.query import BundleInfo, RecallAnswer, RecallQuery


class RecallBackend(Protocol):
    """Answers questions; `serving.pipeline` in production, a fake in tests."""

    async def recall(self, query: RecallQuery, scene: str) -> RecallAnswer:
        """Answer one question asked from `scene`, any string.

        Cancelling the coroutine stops the work. Raises the errors of `recall_service.errors`; anything else is
        treated as a fault of the server.
        """

    def bundles(self) -> Sequence[BundleInfo]:
        """Every live bundle, the default one first. Called for every request, so it must not wait."""
