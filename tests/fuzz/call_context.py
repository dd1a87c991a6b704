"""What of a ServicerContext the handlers use, without a connection."""

from collections.abc import Callable
from typing import Any, NoReturn

import grpc

Metadata = tuple[tuple[str, str | bytes], ...]


class Aborted(Exception):
    """The status that a handler ended its call with."""

    def __init__(self, code: grpc.StatusCode, message: str, trailers: Metadata) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code, self.message, self.trailers = code, message, dict(trailers)

    @property
    def num_bytes(self) -> int:
        """Of message and trailers as they travel, at most: three bytes for each one of the message."""
        return sum(len(key) + len(value) for key, value in self.trailers.items()) + 3 * len(self.message.encode())


class CallContext:
    """One call; `end` is what gRPC does once its response is sent."""

    def __init__(self, metadata: Metadata, seconds_left: float | None) -> None:
        self._metadata, self._seconds_left = metadata, seconds_left
        self._callbacks: list[Callable[[Any], object]] = []

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        return self._seconds_left

    def auth_context(self) -> dict[str, Any]:
        return {}

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self._callbacks.append(callback)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Metadata = ()) -> NoReturn:
        raise Aborted(code, details, trailing_metadata)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)
