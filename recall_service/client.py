"""The Python client: `RecallClient` for threads, `AsyncRecallClient` for asyncio. Needs only grpc and the stubs.

    with RecallClient("recall:50051") as client:
        for item in client.recall(history=["B001", "B002"], num_items=50).items:
            print(item.item_id, item.score)

Calls go round robin over every healthy address that the target's name resolves to. A call that met an UNAVAILABLE
replica is tried again, at most twice and within its timeout; nothing else is repeated.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, Unpack, cast

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from grpc_status import rpc_status

from recall_service.errors import Violation
from recall_service.stubs.recall.v1 import recall_pb2, recall_pb2_grpc

DEFAULT_TIMEOUT_SECONDS = 5.0

_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    # Replicas that warm up or drain say so to whoever watches, and get no calls.
    "healthCheckConfig": {"serviceName": "recall.v1.RecallService"},
    "methodConfig": [
        {
            "name": [{"service": "recall.v1.RecallService"}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.05s",
                "maxBackoff": "0.5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    # Stops repeating when most calls fail, so that clients do not pile on to servers in trouble.
    "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1},
}
_OPTIONS = (("grpc.service_config", json.dumps(_SERVICE_CONFIG)),)


class Question(TypedDict, total=False):
    """What `recall` takes, by keyword. What is left out, 0 or empty means the server's default.

    Exactly one of `history` (item ids, oldest first) and `prompt` (token ids) is required. `include_steps` asks for
    the log-probability and the rank of every token of every item's semantic ID. `search_mode` "proven" asks for items
    that are proven to be the model's true top of the whole catalogue, as far as the bundle's budget reaches.
    """

    history: Sequence[str]
    prompt: Sequence[int]
    bundle: str
    num_items: int
    beam_width: int
    search_mode: Literal["beam", "proven"]
    scene: str
    user_id: str
    request_id: str
    cache: Literal["use", "refresh", "bypass"]
    include_steps: bool


@dataclass(frozen=True, slots=True)
class RecalledItem:
    """One item. `score` sums the log-probabilities of its semantic ID `sid`; steps are empty unless asked for."""

    item_id: str
    score: float
    sid: tuple[int, ...]
    step_log_probs: tuple[float, ...]
    step_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """An answer: items, best first, and how it came about. Enums are given by name, times in seconds.

    short_reason: why there are fewer items than were asked for; empty when there are as many.
    proven_count: the first so many items are the model's true top of the whole catalogue.
    """

    request_id: str
    items: tuple[RecalledItem, ...]
    short_reason: str
    proven_count: int
    served_from: str
    bundle: str
    bundle_version: str
    catalog_version: str
    score_space: str
    beam_width: int
    unknown_history_items: int
    rows_forwarded: int
    rows_skipped: int
    attribution_token: str
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    total_seconds: float


class RecallClientError(Exception):
    """A call that got no answer.

    code: the gRPC status. reason: the server's stable name for what went wrong; empty when no server spoke.
    violations: every field that was wrong. retry_after_seconds: when the server asks to come back, if it does.
    request_id: what to quote to the operators of the service; may be empty.
    """

    def __init__(self, error: grpc.RpcError) -> None:
        self.code = error.code()
        self.reason = ""
        self.request_id = ""
        self.violations: tuple[Violation, ...] = ()
        self.retry_after_seconds: float | None = None
        super().__init__(f"{self.code.name}: {error.details()}")
        self._read_details(error)

    def _read_details(self, error: grpc.RpcError) -> None:
        try:
            status = rpc_status.from_call(error)
        except ValueError:  # something between us and the server rewrote the status
            return
        info, bad_request, retry = ErrorInfo(), BadRequest(), RetryInfo()
        for detail in status.details if status is not None else ():
            if detail.Unpack(info):
                self.reason, self.request_id = info.reason, info.metadata.get("request_id", "")
            elif detail.Unpack(bad_request):
                self.violations = tuple(Violation(v.field, v.description) for v in bad_request.field_violations)
            elif detail.Unpack(retry):
                self.retry_after_seconds = retry.retry_delay.ToTimedelta().total_seconds()


class RecallClient:
    """Blocking client; safe to share between threads. `target` is "host:port" or any gRPC target.

    `timeout` bounds every call, in seconds; a call may bring its own.
    """

    def __init__(self, target: str, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._channel = grpc.insecure_channel(_resolvable(target), options=_OPTIONS)
        self._stub = recall_pb2_grpc.RecallServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def recall(self, *, timeout: float | None = None, **question: Unpack[Question]) -> RecallResult:
        """Which items next? Raises RecallClientError; ValueError when the question cannot be put into words."""
        request = _request(question)
        try:
            return _result(self._stub.Recall(request, timeout=self._timeout if timeout is None else timeout))
        except grpc.RpcError as error:
            raise RecallClientError(error) from error

    def serving_info(self) -> recall_pb2.GetServingInfoResponse:
        """Bundles, versions and limits, as the contract's own message. Raises RecallClientError."""
        try:
            info = self._stub.GetServingInfo(recall_pb2.GetServingInfoRequest(), timeout=self._timeout)
        except grpc.RpcError as error:
            raise RecallClientError(error) from error
        return cast("recall_pb2.GetServingInfoResponse", info)

    def close(self) -> None:
        """Close the connections; calls in flight end as cancelled."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncRecallClient:
    """The same for asyncio; belongs to the event loop that it is made in. Cancelling a call stops the server's work."""

    def __init__(self, target: str, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._channel = grpc.aio.insecure_channel(_resolvable(target), options=_OPTIONS)
        self._stub = recall_pb2_grpc.RecallServiceStub(self._channel)  # type: ignore[no-untyped-call]

    async def recall(self, *, timeout: float | None = None, **question: Unpack[Question]) -> RecallResult:  # noqa: ASYNC109
        """Which items next? Raises RecallClientError; ValueError when the question cannot be put into words."""
        request = _request(question)
        try:
            return _result(await self._stub.Recall(request, timeout=self._timeout if timeout is None else timeout))
        except grpc.RpcError as error:
            raise RecallClientError(error) from error

    async def serving_info(self) -> recall_pb2.GetServingInfoResponse:
        """Bundles, versions and limits, as the contract's own message. Raises RecallClientError."""
        try:
            info = await self._stub.GetServingInfo(recall_pb2.GetServingInfoRequest(), timeout=self._timeout)
        except grpc.RpcError as error:
            raise RecallClientError(error) from error
        return cast("recall_pb2.GetServingInfoResponse", info)

    async def close(self) -> None:
        """Close the connections; calls in flight end as cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def _resolvable(target: str) -> str:
    """DNS gives every address of a name, which round robin needs."""
    return target if "://" in target or target.startswith("unix:") else f"dns:///{target}"


def _request(question: Question) -> recall_pb2.RecallRequest:
    fields: dict[str, Any] = dict(question)
    if "history" in fields and "prompt" in fields:
        raise ValueError("both history and prompt are given; give one of them")
    if "history" in fields:
        fields["history"] = recall_pb2.ItemHistory(item_ids=fields["history"])
    if "prompt" in fields:
        fields["prompt"] = recall_pb2.TokenPrompt(token_ids=fields["prompt"])
    if "cache" in fields:
        fields["cache_mode"] = f"CACHE_MODE_{fields.pop('cache').upper()}"
    if "search_mode" in fields:
        fields["search_mode"] = f"SEARCH_MODE_{fields['search_mode'].upper()}"
    return recall_pb2.RecallRequest(**fields)


def _result(response: recall_pb2.RecallResponse) -> RecallResult:
    reason = recall_pb2.ShortReason.Name(response.completeness.short_reason).removeprefix("SHORT_REASON_")
    timings = response.timings
    return RecallResult(
        request_id=response.request_id,
        items=tuple(
            RecalledItem(item.item_id, item.score, tuple(item.sid), tuple(item.step_log_probs), tuple(item.step_ranks))
            for item in response.items
        ),
        short_reason="" if reason == "UNSPECIFIED" else reason,
        proven_count=response.proven_count,
        served_from=recall_pb2.ServedFrom.Name(response.served_from).removeprefix("SERVED_FROM_"),
        bundle=response.bundle,
        bundle_version=response.bundle_version,
        catalog_version=response.catalog_version,
        score_space=recall_pb2.ScoreSpace.Name(response.score_space).removeprefix("SCORE_SPACE_"),
        beam_width=response.beam_width,
        unknown_history_items=response.unknown_history_items,
        rows_forwarded=response.rows_forwarded,
        rows_skipped=response.rows_skipped,
        attribution_token=response.attribution_token,
        queue_seconds=timings.queue_us * 1e-6,
        prefill_seconds=timings.prefill_us * 1e-6,
        decode_seconds=timings.decode_us * 1e-6,
        total_seconds=timings.total_us * 1e-6,
    )
