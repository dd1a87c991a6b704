"""One call under way, and what may be written of it once it has ended: no user, no history, no item."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_service.stubs.recall.v1 import recall_pb2

Facts = dict[str, str | int]


@dataclass(slots=True, eq=False)
class Call:
    """Filled in as the call goes on. scene: as the caller wrote it, any string.

    response: of a Recall that was answered. results: of a BatchRecall. reason: ErrorInfo.reason of a call that failed.
    """

    request_id: str
    scene: str | None = None
    response: recall_pb2.RecallResponse | None = None
    results: Sequence[recall_pb2.BatchRecallResult] | None = None
    reason: str = ""

    def facts(self) -> Facts:
        """What is known by now, and nothing else: looked up here, so that calls nobody writes about cost nothing."""
        facts: Facts = {"request_id": self.request_id}
        if self.scene is not None:
            facts["scene"] = self.scene
        if self.response is not None:
            served_from = recall_pb2.ServedFrom.Name(self.response.served_from)
            facts["bundle"] = self.response.bundle
            facts["served_from"] = served_from.removeprefix("SERVED_FROM_").lower()
            facts["items"] = len(self.response.items)
            facts["proven"] = self.response.proven_count
        if self.results is not None:
            facts["entries"] = len(self.results)
            facts["failed"] = sum(result.HasField("failure") for result in self.results)
        if self.reason:
            facts["reason"] = self.reason
        return facts
