"""The Python client: `RecallClient` for threads, `AsyncRecallClient` for asyncio. Needs only grpc and the stubs.

    with RecallClient("recall:50051") as client:
        for item in client.recall(history=["B001", "B002"], num_items=50).items:
            print(item.item_id, item.score)

Calls go round robin over every healthy address that the target's name resolves to. A call that met a replica that is
gone or full is tried again as `policy` says, within its timeout; nothing else is repeated.
"""

from recall_service.client.aio import AsyncRecallClient
from recall_service.client.channel import Tls
from recall_service.client.errors import RecallClientError
from recall_service.client.policy import MAX_REQUEST_BYTES
from recall_service.client.predicates import InRange, IsIn, NotIn
from recall_service.client.question import Question
from recall_service.client.result import RecalledItem, RecallFailure, RecallResult
from recall_service.client.sync import RecallClient
from recall_service.client.terms import DEFAULT_TIMEOUT_SECONDS

__all__ = [
    "RecallClient",
    "AsyncRecallClient",
    "Question",
    "IsIn",
    "NotIn",
    "InRange",
    "RecallResult",
    "RecalledItem",
    "RecallFailure",
    "RecallClientError",
    "Tls",
    "DEFAULT_TIMEOUT_SECONDS",
    "MAX_REQUEST_BYTES",
]
