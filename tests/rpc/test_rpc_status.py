"""The table from errors to status, in memory and over the wire."""

import logging

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from item_catalog.errors import CatalogError
from recall_service.errors import (
    BundleError,
    ChangeRefused,
    CheckpointError,
    DeadlineExpired,
    EngineFailure,
    HistoryEmpty,
    InvalidRequest,
    ModelOutputError,
    NotReady,
    Overloaded,
    PermissionDenied,
    RecallError,
    ReplayError,
    RequestCancelled,
    RequestLogError,
    SettingsError,
    SetupError,
    Unauthenticated,
    UnknownVersion,
    Violation,
)
from recall_service.rpc.status import DOMAIN, failure_of, status_of
from tests.rpc.fake_backend import FakeBackend, by_history, running

ROWS = [
    (InvalidRequest([Violation("prompt.token_ids[1]", "7 is too large")]), "INVALID_ARGUMENT", "INVALID_REQUEST"),
    (HistoryEmpty("nothing known"), "FAILED_PRECONDITION", "HISTORY_EMPTY"),
    (Unauthenticated("no token that is known here"), "UNAUTHENTICATED", "UNAUTHENTICATED"),
    (PermissionDenied("no right to it"), "PERMISSION_DENIED", "PERMISSION_DENIED"),
    (Overloaded("queue full", retry_after_seconds=0.25), "RESOURCE_EXHAUSTED", "OVERLOADED"),
    (DeadlineExpired("prefill"), "DEADLINE_EXCEEDED", "DEADLINE_EXPIRED"),
    (RequestCancelled("gone"), "CANCELLED", "CANCELLED"),
    (NotReady("warming"), "UNAVAILABLE", "NOT_READY"),
    (UnknownVersion("no such bundle"), "NOT_FOUND", "UNKNOWN_VERSION"),
    (ChangeRefused("no store; publish it into one"), "FAILED_PRECONDITION", "CHANGE_REFUSED"),
    (EngineFailure("a secret of the inside"), "INTERNAL", "ENGINE_FAILURE"),
    (ModelOutputError("a secret of the inside"), "INTERNAL", "MODEL_OUTPUT"),
    (SetupError("a secret of the inside"), "INTERNAL", "SETUP"),
    (SettingsError("a secret of the inside"), "INTERNAL", "SETUP"),
    (BundleError("a secret of the inside"), "INTERNAL", "SETUP"),
    (CheckpointError("a secret of the inside"), "INTERNAL", "SETUP"),
    (ReplayError("a secret of the inside"), "INTERNAL", "SETUP"),
    (RequestLogError("a secret of the inside"), "INTERNAL", "SETUP"),
    (CatalogError("a secret of the inside"), "INTERNAL", "INTERNAL"),
    (ValueError("a secret of the inside"), "INTERNAL", "INTERNAL"),
]


def error_info(status: Status) -> ErrorInfo:
    info = ErrorInfo()
    assert sum(detail.Unpack(info) for detail in status.details) == 1
    return info


def descendants(kind: type) -> set[type]:
    return {kind}.union(*(descendants(child) for child in kind.__subclasses__()))


def test_the_rows_below_cover_the_whole_tree() -> None:
    of_ours = {kind for kind in descendants(RecallError) if kind.__module__ == RecallError.__module__}
    assert of_ours - {RecallError} <= {type(error) for error, _, _ in ROWS}


@pytest.mark.parametrize(("error", "code_name", "reason"), ROWS, ids=[type(row[0]).__name__ for row in ROWS])
async def test_each_error_reaches_the_caller_as_its_status(error: Exception, code_name: str, reason: str) -> None:
    async with running(FakeBackend(error)) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history(request_id="r-1"))
    assert caught.value.code().name == code_name
    status = rpc_status.from_call(caught.value)
    info = error_info(status)
    assert (info.reason, info.domain, info.metadata["request_id"]) == (reason, DOMAIN, "r-1")
    assert "secret" not in str(status)
    assert "secret" not in str(caught.value.trailing_metadata())
    if code_name == "INTERNAL":
        assert "r-1" in caught.value.details()
    else:
        assert caught.value.details() == str(error)
    assert service.observer.handled == [("Recall", code_name)]


def test_an_invalid_request_lists_its_violations() -> None:
    status = status_of(InvalidRequest([Violation("a", "x; do y"), Violation("b[1]", "z")]), "r")
    listed = BadRequest()
    assert status.details[0].Unpack(listed)
    assert [(v.field, v.description) for v in listed.field_violations] == [("a", "x; do y"), ("b[1]", "z")]


def test_overload_says_when_to_come_back() -> None:
    retry = RetryInfo()
    assert status_of(Overloaded("full", retry_after_seconds=0.25), "r").details[0].Unpack(retry)
    assert retry.retry_delay.ToTimedelta().total_seconds() == 0.25


async def test_overload_pushes_back_clients_that_know_nothing_of_our_details() -> None:
    async with running(FakeBackend(Overloaded("full", retry_after_seconds=0.2501))) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history())
    assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "251"


async def test_nothing_else_pushes_back() -> None:
    async with running(FakeBackend(NotReady("warming"))) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history())
    assert "grpc-retry-pushback-ms" not in dict(caught.value.trailing_metadata())


def test_an_expired_deadline_names_its_stage() -> None:
    assert error_info(status_of(DeadlineExpired("decode"), "r")).metadata["stage"] == "decode"


def test_a_fault_of_the_server_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        status_of(ValueError("a secret of the inside"), "r-9")
    (record,) = caplog.records
    assert "r-9" in record.getMessage()
    assert record.exc_info is not None
    assert "a secret of the inside" in str(record.exc_info[1])


def test_a_fault_of_the_caller_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    status_of(UnknownVersion("no such bundle"), "r")
    assert not caplog.records


async def test_ten_thousand_violations_still_fit_the_trailers() -> None:
    """Clients refuse trailers over 8 KiB, and would tell their user of a protocol error in place of ours."""
    async with running(FakeBackend()) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.stub.Recall(by_history(*["é" * 129] * 10_000))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    status = rpc_status.from_call(caught.value)
    assert error_info(status).metadata["num_violations"] == "10000"
    listed = BadRequest()
    assert status.details[0].Unpack(listed)
    assert 10 <= len(listed.field_violations) < 10_000
    assert sum(len(key) + len(value) for key, value in caught.value.trailing_metadata()) < 6_000


def test_a_failure_in_a_batch_says_the_same_as_a_status() -> None:
    failure = failure_of(UnknownVersion("no such bundle"), "r")
    assert (failure.code, failure.message, failure.reason, failure.request_id) == (
        grpc.StatusCode.NOT_FOUND.value[0],
        "no such bundle",
        "UNKNOWN_VERSION",
        "r",
    )
    assert not failure.HasField("retry_after")
    assert failure.limit == ""


def test_an_entry_for_which_there_was_no_room_is_told_when_to_come_back() -> None:
    failure = failure_of(Overloaded("queue full", retry_after_seconds=0.25, limit="client_limit"), "r")
    assert failure.retry_after.ToMilliseconds() == 250
    assert failure.limit == "client_limit"
