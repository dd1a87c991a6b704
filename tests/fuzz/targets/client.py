"""What a client hears: answers and failures of a server of another age, of a proxy, or of an impostor."""

import random
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from recall_service.client.errors import RecallClientError
from recall_service.client.result import to_outcomes, to_result
from recall_service.errors import InvalidRequest, Overloaded, Violation
from recall_service.rpc.convert import encode_response
from recall_service.rpc.status import failure_of, status_of
from recall_service.stubs.recall.v1 import recall_pb2
from tests.fuzz.hostile import Hostile
from tests.fuzz.mutate_bytes import mutate_bytes
from tests.fuzz.mutate_messages import mutate_message, spoilt_message
from tests.rpc.fake_backend import make_answer

_ERRORS = (
    InvalidRequest([Violation("num_items", "9; give at most 4"), Violation("context", "missing")]),
    Overloaded("full; come back", retry_after_seconds=0.25, limit="client_limit"),
)
_RESPONSES = [
    recall_pb2.RecallResponse.FromString(
        encode_response(make_answer(size, steps=size > 2), request_id="r", attribution_token="a", total_seconds=0.0)
    )
    for size in (1, 3, 20)
]
_BATCH = recall_pb2.BatchRecallResponse(
    results=[
        recall_pb2.BatchRecallResult(response=_RESPONSES[0]),
        recall_pb2.BatchRecallResult(failure=failure_of(_ERRORS[0], "r")),
    ]
)
_CODES = list(grpc.StatusCode)


class Target:
    """An answer in Python's words, or RecallClientError with as much as could be read."""

    def __init__(self, directory: Path) -> None:
        self._statuses = [status_of(error, "r") for error in _ERRORS]

    def make(self, generator: random.Random) -> Hostile:
        """place: the message that is heard; of a status also the number of the code beside it."""
        chance = generator.random()
        if chance < 0.3:
            return Hostile("answer", spoilt_message(generator, generator.choice(_RESPONSES), _RESPONSES[1]))
        if chance < 0.5:
            return Hostile("batch", spoilt_message(generator, _BATCH, _RESPONSES[1]))
        status = generator.choice(self._statuses)
        spoilt = _spoilt_status(generator, status)
        code = status.code if generator.random() < 0.8 else generator.randrange(17)
        return Hostile(f"status/{code}", spoilt)

    def check(self, hostile: Hostile) -> None:
        kind, _, code = hostile.place.partition("/")
        if kind == "status":
            error = RecallClientError.of_call(_Failed(int(code), hostile.data))
            if error.code.value[0] != int(code):
                raise AssertionError(f"code {error.code} of a call that ended with {code}")
            return
        message = recall_pb2.RecallResponse() if kind == "answer" else recall_pb2.BatchRecallResponse()
        try:
            message.ParseFromString(hostile.data)
        except DecodeError:  # gRPC makes a status of it before anybody of ours sees it
            return
        if isinstance(message, recall_pb2.RecallResponse):
            to_result(message)
        else:
            to_outcomes(message)

    def close(self) -> None:
        pass


class _Failed(grpc.RpcError):
    """A call that failed, as gRPC raises it."""

    def __init__(self, code: int, status: bytes) -> None:
        self._code = next(known for known in _CODES if known.value[0] == code)
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        try:
            return Status.FromString(self._status).message
        except DecodeError:
            return "as a proxy put it"

    def trailing_metadata(self) -> tuple[tuple[str, Any], ...]:
        return (("grpc-status-details-bin", self._status),)


def _spoilt_status(generator: random.Random, status: Status) -> bytes:
    """The details are messages within bytes: they are spoilt as the one or as the other."""
    if generator.random() < 0.3:
        return spoilt_message(generator, status, status)
    spoilt = Status()
    spoilt.CopyFrom(status)
    detail: AnyMessage = generator.choice(spoilt.details)
    known = _message_of(detail)
    if generator.random() < 0.3:
        detail.value = mutate_bytes(generator, detail.value)
    else:
        detail.value = mutate_message(generator, known).SerializeToString()
    return spoilt.SerializeToString()


def _message_of(detail: AnyMessage) -> Any:
    from google.protobuf.symbol_database import Default

    message = Default().GetSymbol(detail.TypeName())()
    detail.Unpack(message)
    return message
