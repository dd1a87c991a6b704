"""A recall server as a target: a few connections, and nothing repeated, so that every failure is seen.

Answers are decoded here, not by gRPC, which would hand out None for one that cannot be.
"""

from typing import Any

import grpc
from google.protobuf.message import DecodeError

from recall_service.client import RecallClientError
from recall_service.client.channel import Access, open_aio_channel
from recall_service.client.policy import BALANCING, channel_options
from recall_service.errors import ReplayError
from recall_service.replay.answers import from_response
from recall_service.replay.asked import Asked
from recall_service.replay.target import Reply
from recall_service.stubs.recall.v1 import recall_pb2

_SERVICE = "/recall.v1.RecallService"
_REMEDY = "give a server that this version of recall-service can ask"
_OPEN_SECONDS = 10.0
_OPTIONS = (
    *channel_options(BALANCING),
    ("grpc.use_local_subchannel_pool", 1),  # or all channels would share one connection
    ("grpc.enable_retries", 0),
)


class GrpcTarget:
    """The server at `address`, host:port or any gRPC target. Questions take turns over `num_channels` connections."""

    def __init__(self, address: str, access: Access | None = None, *, num_channels: int = 4) -> None:
        self._address = address
        self._access = access or Access()
        self._num_channels = num_channels
        self._channels: list[grpc.aio.Channel] = []
        self._methods: list[Any] = []  # Recall on each channel
        self._num_asked = 0

    async def open(self) -> str:
        """Connect and ask what is served. Raises ReplayError when that is not this contract's recall service."""
        try:
            for _ in range(self._num_channels):
                self._channels.append(open_aio_channel(self._address, self._access, _OPTIONS))
        except ValueError as error:
            raise ReplayError(f"{self._address}: {error}") from None
        serialize = recall_pb2.RecallRequest.SerializeToString
        self._methods = [channel.unary_unary(f"{_SERVICE}/Recall", serialize) for channel in self._channels]
        try:
            info = await self._serving_info()
        except ReplayError:
            await self.close()
            raise
        bundles = ", ".join(f"{b.name} {b.version} with catalogue {b.catalog_version}" for b in info.bundles)
        return f"{self._address}, recall-service {info.server_version}: {bundles}"

    async def ask(self, asked: Asked, timeout_seconds: float) -> Reply:
        """Put one question, once."""
        self._num_asked += 1
        method = self._methods[self._num_asked % self._num_channels]
        try:
            answer = await method(asked.request, timeout=timeout_seconds, metadata=self._access.metadata())
        except grpc.RpcError as error:
            return Reply(error.code().name, RecallClientError.of_call(error).reason)
        try:
            return Reply("OK", answer=from_response(recall_pb2.RecallResponse.FromString(answer)))
        except DecodeError:
            return Reply("INTERNAL", "UNREADABLE_ANSWER")

    async def _serving_info(self) -> recall_pb2.GetServingInfoResponse:
        ask: Any = self._channels[0].unary_unary(f"{_SERVICE}/GetServingInfo")
        try:
            answer = await ask(b"", timeout=_OPEN_SECONDS, metadata=self._access.metadata())
            info = recall_pb2.GetServingInfoResponse.FromString(answer)
        except grpc.RpcError as error:
            raise ReplayError(f"{self._address}: {_why_unfit(error)}") from None
        except DecodeError:
            raise ReplayError(f"{self._address}: says in another contract's words what it serves; {_REMEDY}") from None
        if not info.bundles:
            raise ReplayError(f"{self._address}: serves no bundle; wait until it does, or give another target")
        return info

    async def close(self) -> None:
        """Close the connections."""
        for channel in self._channels:
            await channel.close()


def _why_unfit(error: grpc.RpcError) -> str:
    code, details = error.code(), error.details()
    if RecallClientError.of_call(error).reason:
        return f"refuses to say what it serves: {details}"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return f"speaks gRPC, but not recall.v1: another version of the API, or another service; {_REMEDY}"
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"cannot be reached ({details}); start the server, or correct the address"
    return f"did not say what it serves ({code.name}: {details}); {_REMEDY}"
