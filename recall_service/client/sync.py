"""The client for threads."""

from collections.abc import Sequence
from typing import Any, Self, Unpack, cast

import grpc
from google.protobuf.message import Message

from recall_service.client.channel import Access, Tls, Token, open_channel
from recall_service.client.errors import RecallClientError
from recall_service.client.policy import MAX_REQUEST_BYTES, RETRYING, channel_options
from recall_service.client.question import Question, to_batch, to_request
from recall_service.client.result import RecallFailure, RecallResult, to_outcomes, to_result
from recall_service.client.terms import DEFAULT_TIMEOUT_SECONDS, CallTerms, HasDeadline
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc


class RecallClient:
    """Blocking client; safe to share between threads. `target` is "host:port" or any gRPC target.

    timeout: bounds every call with all its attempts, in seconds; a call may bring its own.
    tls: None: no TLS. token: who asks; without TLS it goes to this machine alone, unless allow_insecure_token says
    otherwise. max_request_bytes: as the server has it.
    Raises ValueError for a target, file or token that is not fit.
    """

    def __init__(
        self,
        target: str,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        tls: Tls | None = None,
        token: Token | None = None,
        allow_insecure_token: bool = False,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        access = Access(tls, token, allow_insecure_token)
        self._terms = CallTerms(access, timeout, max_request_bytes)
        self._channel = open_channel(target, access, channel_options(RETRYING, max_request_bytes=max_request_bytes))
        self._stub = recall_pb2_grpc.RecallServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def recall(
        self, *, timeout: float | None = None, within: HasDeadline | None = None, **question: Unpack[Question]
    ) -> RecallResult:
        """Which items next? Raises RecallClientError; ValueError when the question cannot be put into words.

        within: the context of the call that the caller itself is to answer, whose deadline bounds this one.
        """
        return to_result(self._call(self._stub.Recall, to_request(question), timeout, within))

    def recall_batch(
        self, questions: Sequence[Question], *, timeout: float | None = None, within: HasDeadline | None = None
    ) -> list[RecallResult | RecallFailure]:
        """Several questions in one call; each is answered or fails alone, in their order. Raises as `recall` does."""
        return to_outcomes(self._call(self._stub.BatchRecall, to_batch(questions), timeout, within))

    def serving_info(self) -> recall_pb2.GetServingInfoResponse:
        """Bundles, versions and limits, as the contract's own message. Raises RecallClientError."""
        info = self._call(self._stub.GetServingInfo, recall_pb2.GetServingInfoRequest(), None, None)
        return cast("recall_pb2.GetServingInfoResponse", info)

    def close(self) -> None:
        """Close the connections; calls in flight end as cancelled."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _call(self, method: Any, request: Message, timeout: float | None, within: HasDeadline | None) -> Any:
        terms = self._terms.of_call(request, timeout, within)
        try:
            return method(request, **terms)
        except grpc.RpcError as error:
            raise RecallClientError.of_call(error) from error
