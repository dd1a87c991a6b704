"""One call under way, and what may be written of it once it has ended: no user, no history, no item."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from recall_service.rpc.batch_wire import Outcome
from recall_service.serving.query import RecallAnswer
from recall_service.stubs.recall.v1.recall_pb2 import RecallFailure

Facts = dict[str, str | int]


@dataclass(slots=True, eq=False)
class Call:
    """Filled in as the call goes on.

    client: who calls, as authentication knows it; empty for anybody. scene: as the caller wrote it, any string.
    answer: of a Recall that was answered. outcomes: of a BatchRecall. reason: ErrorInfo.reason of a call that failed.
    on_end: told the code and the reason of the end, whichever it is; the reason is empty when the code is OK.
    """

    request_id: str
    client: str = ""
    scene: str | None = None
    answer: RecallAnswer | None = None
    outcomes: Sequence[Outcome] | None = None
    reason: str = ""
    on_end: Callable[[grpc.StatusCode, str], None] | None = None

    def facts(self) -> Facts:
        """What is known by now, and nothing else: looked up here, so that calls nobody writes about cost nothing."""
        facts: Facts = {"request_id": self.request_id}
        if self.client:
            facts["client"] = self.client
        if self.scene is not None:
            facts["scene"] = self.scene
        if self.answer is not None:
            facts["bundle"] = self.answer.bundle
            facts["served_from"] = self.answer.served_from.name.lower()
            facts["items"] = len(self.answer.item_ids)
            facts["proven"] = self.answer.proven_count
        if self.outcomes is not None:
            facts["entries"] = len(self.outcomes)
            facts["failed"] = sum(isinstance(outcome, RecallFailure) for outcome in self.outcomes)
        if self.reason:
            facts["reason"] = self.reason
        return facts
